"""What a log with keys may say to whoever reads it while it is compacted: pure.

A **table** knows what was written, and where it was acked. A reader that went from the beginning to a tail that it had
asked for before has seen a part of that:

- offsets grow, and what is at an offset is what was written there, or something of which nobody knows where it is;
- of each key the last acked record below that tail was seen, or a later one of the same key, unless there is one where
  the reader has stopped or behind it: then a compaction up to there may have taken all that the reader wanted;
- a mark of a deleted key may be missing once it could have been cleaned for long enough; then nothing older of the key
  was seen, unless the reader took longer than that;
- a batch that nobody can decode is where it was acked, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

LANDS_S = 60.0
"""After that an append of which nobody knows is in the log, or never will be."""


class Row(NamedTuple):
    """A record; no two have the same name."""

    key: bytes
    is_mark: bool
    name: str


class Acked(NamedTuple):
    row: Row
    invoked: float
    acked: float


class Seen(NamedTuple):
    offset: int
    row: Row


class Table:
    def __init__(self, mark_kept_s: float) -> None:
        """Marks of deleted keys are kept so long at least, by all clocks."""
        self._mark_kept_s = mark_kept_s
        self.acked: dict[int, Acked] = {}
        self.unsure: dict[Row, float] = {}
        """Appended since then by somebody who does not know whether it took place, or is about to get to know."""
        self.opaque: dict[int, tuple[bytes, float]] = {}
        """Batches that nobody can decode, and when each was acked."""

    def forget(self, rows: Sequence[Row]) -> None:
        """What became of these is known."""
        for row in rows:
            del self.unsure[row]

    def faults(self, seen: Sequence[Seen], tail: int, stopped: int, began: float, ended: float) -> Iterator[str]:
        """What is wrong with a read from the beginning up to offset `stopped`, which is not below a tail that was
        asked for before it began."""
        offsets = [each.offset for each in seen]
        if offsets != sorted(set(offsets)):
            yield f"offsets don't grow: {offsets}"
        for offset, row in seen:
            known = self.acked.get(offset)
            if (known.row != row) if known is not None else (row not in self.unsure):
                yield f"at {offset} is {row}, and {known} was written there"
        last_seen = {row.key: offset for offset, row in seen}
        for key, offset in self._last(tail, began).items():
            known = self.acked[offset]
            if (
                last_seen.get(key, -1) >= offset
                or self._may_follow(key, stopped, began)
                or self._may_be_deleted(key, ended)
            ):
                continue
            if not known.row.is_mark:
                yield f"the last record of {key!r}, at {offset}, is not there: {last_seen.get(key)}"
            elif ended - known.invoked < self._mark_kept_s:
                yield f"the mark of the deleted {key!r}, at {offset}, went too early"
            elif key in last_seen and ended - began < self._mark_kept_s:
                yield f"{key!r} was deleted at {offset}, and is there again at {last_seen[key]}"

    def opaque_faults(self, seen: Mapping[int, bytes], tail: int, began: float) -> Iterator[str]:
        """The same of batches that nobody can decode."""
        for offset, (data, acked) in self.opaque.items():
            if offset < tail and acked <= began and seen.get(offset) != data:
                yield f"the batch at {offset}, which nobody can decode, is not there: {seen.get(offset)!r}"

    def _last(self, tail: int, before: float) -> dict[bytes, int]:
        """Of each key: the last offset below the tail that was acked before that time."""
        known = sorted(offset for offset, each in self.acked.items() if offset < tail and each.acked <= before)
        return {self.acked[offset].row.key: offset for offset in known}

    def _may_follow(self, key: bytes, stopped: int, began: float) -> bool:
        known = any(offset >= stopped and each.row.key == key for offset, each in self.acked.items())
        return known or any(row.key == key and began - since < LANDS_S for row, since in self.unsure.items())

    def _may_be_deleted(self, key: bytes, now: float) -> bool:
        """By somebody who does not know, so long ago that the mark may have gone, too."""
        marks = [since for row, since in self.unsure.items() if row.is_mark and row.key == key]
        return any(now - since >= self._mark_kept_s for since in marks)
