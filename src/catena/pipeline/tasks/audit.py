"""The task that audits: it reads all bytes of pieces of partitions, and says what is wrong with them.

A piece is runs of WAL blobs, or segments. A blob holds runs of many pieces, and is read once; segments are read a
little at a time. So a task holds some tens of megabytes, however much it reads. What it finds it judges in the order of
offsets at the end: of a producer it needs no more than where it began and where it has come to.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.records import IndexEntry
from catena.pipeline.defects import Defect
from catena.pipeline.producer_trail import Track, Trail
from catena.pipeline.tasks.audit_runs import Run, blob_of, check_blob
from catena.pipeline.tasks.audit_segments import check_segment
from catena.pipeline.tasks.audit_unit import Unit
from catena.pipeline.tasks.base import TaskContext
from catena.runtime.tasks import map_bounded
from catena.types import Offset, TopicId, TopicPartition

READS_AT_ONCE = 4
BLOB_BYTES = 32 << 20
"""Of one blob, read together."""
MAX_DEFECTS = 100
"""Of one piece; the others are counted."""

_Job: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Piece(msgspec.Struct, frozen=True):
    """A stretch of a partition, without gaps, in runs or in segments."""

    topic: str
    topic_id: TopicId
    partition: int
    runs: tuple[IndexEntry, ...] = ()
    segments: tuple[SegmentInfo, ...] = ()
    since_ms: int = 0
    """When what comes before was appended, if it is known."""

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.topic_id, self.partition)

    @property
    def base(self) -> Offset:
        return self.segments[0].base if self.segments else self.runs[0].start_offset

    @property
    def end(self) -> Offset:
        return self.segments[-1].end if self.segments else self.runs[-1].end_offset + 1

    @property
    def size(self) -> int:
        return sum(run.byte_length or 0 for run in self.runs) + sum(each.size for each in self.segments)

    def key_at(self, offset: Offset) -> str:
        """Of the object that holds it."""
        for segment in self.segments:
            if segment.end > offset:
                return segment.key
        return next((blob_of(run) for run in self.runs if run.end_offset >= offset), "")


class AuditPlan(msgspec.Struct, frozen=True):
    cluster_id: str
    pieces: tuple[Piece, ...]


class PieceResult(msgspec.Struct, frozen=True):
    offsets: int
    """What was found sound."""
    batches: int
    bytes: int
    defects: tuple[Defect, ...]
    unlisted: int
    """Defects past the limit."""
    errors: tuple[str, ...]
    """Why some of it could not be looked at."""
    track: Track


class AuditResult(msgspec.Struct, frozen=True):
    """For each piece, in order."""

    pieces: tuple[PieceResult, ...]


_plan = msgspec.json.Decoder(AuditPlan)


async def run(context: TaskContext, plan: bytes) -> bytes:
    return msgspec.json.encode(await audit_pieces(context, _plan.decode(plan)))


async def audit_pieces(context: TaskContext, plan: AuditPlan) -> AuditResult:
    units = [list(_units(piece)) for piece in plan.pieces]
    jobs = [*_segment_jobs(context, plan, units), *_blob_jobs(context, plan, units)]
    await map_bounded(READS_AT_ONCE, lambda job: job(), jobs)
    return AuditResult(tuple(map(_result, units)))


def _units(piece: Piece) -> Iterator[Unit]:
    tp = piece.tp
    for segment in piece.segments:
        yield Unit(tp, segment.key, segment.base, segment.end)
    for run in piece.runs:
        yield Unit(tp, blob_of(run), run.start_offset, run.end_offset + 1)


def _segment_jobs(context: TaskContext, plan: AuditPlan, units: Sequence[Sequence[Unit]]) -> Iterator[_Job]:
    for piece, its in zip(plan.pieces, units, strict=True):
        since_ms = piece.since_ms
        for info, unit in zip(piece.segments, its, strict=False):
            yield partial(check_segment, context.objects, plan.cluster_id, info, since_ms, unit)
            since_ms = max(since_ms, info.appended_at_ms)


def _blob_jobs(context: TaskContext, plan: AuditPlan, units: Sequence[Sequence[Unit]]) -> Iterator[_Job]:
    blobs: dict[str, list[Run]] = {}
    for piece, its in zip(plan.pieces, units, strict=True):
        for entry, unit in zip(piece.runs, its[len(piece.segments) :], strict=True):
            blobs.setdefault(entry.data_key, []).append(Run(entry, unit))
    for runs in blobs.values():
        for part in _parts(runs):
            yield partial(check_blob, context.objects, plan.cluster_id, part)


def _parts(runs: list[Run]) -> Iterator[list[Run]]:
    runs.sort(key=lambda run: run.entry.byte_offset)
    part: list[Run] = []
    size = 0
    for run in runs:
        length = run.entry.byte_length or 0
        if part and size + length > BLOB_BYTES:
            yield part
            part, size = [], 0
        part.append(run)
        size += length
    yield part


def _result(units: Sequence[Unit]) -> PieceResult:
    trail = Trail()
    for unit in units:
        unit.broken(trail.follow(unit.trail.track()))
    defects = [found for unit in units for found in unit.defects]
    return PieceResult(
        sum(unit.offsets for unit in units),
        sum(unit.batches for unit in units),
        sum(unit.bytes for unit in units),
        tuple(defects[:MAX_DEFECTS]),
        len(defects[MAX_DEFECTS:]),
        tuple(dict.fromkeys(unit.error for unit in units if unit.error)),
        trail.track(),
    )
