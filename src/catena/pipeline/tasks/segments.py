"""The task that writes segments: ranges of WAL blobs, or whole small segments, become new segments, byte for byte.

A blob holds many partitions, and so a task makes the segments of several: what it needs of a blob it reads with one
call. Bodies are cut out of what was read and not copied again before they are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from catena.errors import CatenaError, RetryLater
from catena.formats import segment as segments
from catena.formats.batch_scan import Source
from catena.formats.segment import SegmentHeader, SegmentInfo
from catena.loglets.diskless.blobs import as_batches, object_key
from catena.loglets.diskless.records import IndexEntry
from catena.meta import keys
from catena.objects.base import ObjectStore, Range
from catena.objects.ranges import read_ranges
from catena.pipeline.tasks.base import TaskContext
from catena.runtime.tasks import map_bounded
from catena.types import ABSENT, Buffer, Offset, TopicId, TopicPartition

BLOBS_AT_ONCE = 8
PUTS_AT_ONCE = 4
"""While the store makes one segment durable, the next is checked."""
COALESCE_GAP_BYTES = 16 << 10
"""Such a gap is read sooner than another place is found."""
COALESCE_MAX_BYTES = 64 << 20


class SegmentPlan(msgspec.Struct, frozen=True):
    """One segment of [base, end), out of runs or out of segments."""

    cluster_id: str
    topic: str
    topic_id: TopicId
    partition: int
    job: str
    base: Offset
    end: Offset
    runs: tuple[IndexEntry, ...] = ()
    segments: tuple[SegmentInfo, ...] = ()

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.topic_id, self.partition)

    @property
    def size(self) -> int:
        return sum(run.byte_length or 0 for run in self.runs) + sum(each.size for each in self.segments)


class SegmentFailed(msgspec.Struct, frozen=True, tag="failed"):
    error: str
    is_retriable: bool


class SegmentWritten(msgspec.Struct, frozen=True, tag="written"):
    info: SegmentInfo


class SegmentsPlan(msgspec.Struct, frozen=True):
    segments: tuple[SegmentPlan, ...]


class SegmentsResult(msgspec.Struct, frozen=True):
    """For each segment of the plan, in order."""

    segments: tuple[SegmentWritten | SegmentFailed, ...]


_plan = msgspec.json.Decoder(SegmentsPlan)


async def run(context: TaskContext, plan: bytes) -> bytes:
    return msgspec.json.encode(await write_segments(context, _plan.decode(plan)))


async def write_segments(context: TaskContext, plan: SegmentsPlan) -> SegmentsResult:
    bodies = await _read_runs(context.objects, plan.segments)
    written = await map_bounded(
        PUTS_AT_ONCE, lambda number: _write(context, plan.segments[number], bodies[number]), range(len(bodies))
    )
    return SegmentsResult(tuple(written))


async def _write(
    context: TaskContext, plan: SegmentPlan, runs: Sequence[Buffer | CatenaError]
) -> SegmentWritten | SegmentFailed:
    """What goes wrong with one segment does not spoil the others."""
    try:
        bodies = [_found(run) for run in runs]
        sources = [Source(object_key(run.data_key), run.byte_offset) for run in plan.runs]
        for info in plan.segments:
            (body,) = await context.objects.get_ranges(info.key, [Range(info.body_at, info.body_bytes)])
            bodies.append(body)
            sources.append(Source(info.key, info.body_at))
        key = keys.segment(plan.tp, plan.job, context.entropy.hex_id())
        is_compacted = any(info.is_compacted for info in plan.segments)
        header = SegmentHeader(
            version=segments.COMPACTED if is_compacted else segments.PLAIN,
            cluster_id=plan.cluster_id,
            topic=plan.topic,
            topic_id=plan.topic_id,
            partition=plan.partition,
            base_offset=plan.base,
            end_offset=plan.end,
            created_at_ms=context.clock.now_ms(),
            appended_at_ms=max(
                [run.created_at_ms for run in plan.runs] + [info.appended_at_ms for info in plan.segments]
            ),
            compaction_id=plan.job,
            records=sum(info.record_count for info in plan.segments) if is_compacted else UNSET,
        )
        encoded = segments.encode(key, header, bodies, sources)
        await context.objects.put(key, encoded.buffers, ABSENT)
    except CatenaError as error:
        message = f"{plan.tp}, offsets {plan.base} to {plan.end - 1}: {type(error).__name__}: {error}"
        return SegmentFailed(message, isinstance(error, RetryLater))
    return SegmentWritten(encoded.info)


def _found(run: Buffer | CatenaError) -> Buffer:
    if isinstance(run, CatenaError):
        raise run
    return run


async def _read_runs(objects: ObjectStore, plans: Sequence[SegmentPlan]) -> list[list[Buffer | CatenaError]]:
    """The bodies of the runs of each plan; each blob is opened once."""
    bodies: list[list[Buffer | CatenaError]] = [[b""] * len(plan.runs) for plan in plans]
    wanted: dict[str, list[tuple[int, int]]] = {}
    for number, plan in enumerate(plans):
        for place, run in enumerate(plan.runs):
            wanted.setdefault(run.data_key, []).append((number, place))
    slots = asyncio.Semaphore(BLOBS_AT_ONCE)

    async def read(data_key: str, places: list[tuple[int, int]]) -> None:
        runs = [plans[number].runs[place] for number, place in places]
        async with slots:
            found = await _read_blob(objects, data_key, runs)
        for (number, place), body in zip(places, found, strict=True):
            bodies[number][place] = body

    await asyncio.gather(*(read(key, places) for key, places in wanted.items()))
    return bodies


async def _read_blob(objects: ObjectStore, data_key: str, runs: Sequence[IndexEntry]) -> list[Buffer | CatenaError]:
    key = object_key(data_key)
    try:
        if any(run.byte_length is None for run in runs):
            whole = memoryview((await objects.get(key)).data)
            raw: list[Buffer] = [whole[run.byte_offset :][: run.byte_length] for run in runs]
        else:
            ranges = [Range(run.byte_offset, run.byte_length or 0) for run in runs]
            raw = await read_ranges(objects, key, ranges, COALESCE_GAP_BYTES, COALESCE_MAX_BYTES)
    except CatenaError as error:
        return [error] * len(runs)
    bodies: list[Buffer | CatenaError] = []
    for run, body in zip(runs, raw, strict=True):
        try:
            bodies.append(as_batches(run, body))
        except CatenaError as error:
            bodies.append(error)
    return bodies
