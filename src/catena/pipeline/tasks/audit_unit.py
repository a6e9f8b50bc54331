"""What an audit has found in one object of a partition: in a run of a WAL blob, or in a segment."""

from __future__ import annotations

from catena.errors import CatenaError
from catena.pipeline.defects import Defect, Kind, defect
from catena.pipeline.producer_trail import Break, Trail
from catena.types import Offset, TopicPartition


class Unit:
    __slots__ = ("batches", "bytes", "defects", "end", "error", "key", "offsets", "records", "start", "tp", "trail")

    def __init__(self, tp: TopicPartition, key: str, start: Offset, end: Offset) -> None:
        self.tp = tp
        self.key = key
        self.start = start
        self.end = end
        """After its last offset."""
        self.offsets = self.records = self.batches = self.bytes = 0
        """What was found sound."""
        self.defects: list[Defect] = []
        self.error = ""
        """Why it could not be looked at; that says nothing about it."""
        self.trail = Trail()

    def found(self, kind: Kind, what: object, first: Offset | None = None, last: Offset | None = None) -> None:
        """A defect of these offsets, or of all."""
        first = self.start if first is None else first
        last = self.end - 1 if last is None else last
        self.defects.append(defect(kind, self.tp, self.key, first, last, str(what)))

    def lost(self, kind: Kind, what: object, first: Offset | None = None, last: Offset | None = None) -> None:
        """A defect, because of which the records can't be looked at."""
        self.found(kind, what, first, last)
        self.trail.break_off()

    def failed(self, error: CatenaError) -> None:
        self.error = f"{type(error).__name__}: {error}"
        self.trail.break_off()

    def broken(self, breaks: list[Break]) -> None:
        for each in breaks:
            self.found(each.kind, each.what, each.first, each.last)
