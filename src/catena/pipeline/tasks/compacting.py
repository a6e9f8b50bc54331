"""The tasks of a compaction: three stages, so that memory is bounded however large a log is, and no value moves.

    keys        of each group of segments: the last record of each of its keys,       group 1   group 2   group 3
                divided into buckets by the hash of the key                             | \\ / |  \\ / | \\ /  |
    survivors   of each bucket: which of these records are the last of their key      bucket 1    bucket 2    ...
                in all groups, but for marks of deleted keys that may go                | / \\ |  / \\ |
    rewrite     of each group: a segment with these records only                      group 1   group 2   group 3

A stage hands over by scratch objects (`scratch`). What a task holds is bounded by the group or the bucket.

A record is lost if a later stage does not get what an earlier one found: so what is rewritten is counted. Every
survivor has to be found among the records, else nothing is written.

A batch that can't be decoded (`columns.walked_batches`) stays where it is, byte for byte, and the others are compacted.
The first stage tells which ones it has not looked into; if the third, on another machine perhaps, looks into one of
these, or into one less, nothing is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import pairwise

import msgspec
import numpy as np

from catena.columns.gather import Body
from catena.columns.last_of_keys import KeyFinder, LastOfKeys, merged
from catena.columns.thinning import Thinner
from catena.errors import Conflict, Corrupt
from catena.formats import segment as segments
from catena.formats.batch_scan import Source
from catena.formats.segment import SegmentHeader, SegmentInfo
from catena.meta import keys
from catena.objects.base import ObjectStore
from catena.pipeline.tasks.base import TaskContext
from catena.pipeline.tasks.bodies import read_bodies
from catena.pipeline.tasks.compact_plans import (
    KeysFound,
    KeysPlan,
    RewritePlan,
    Rewritten,
    SurvivorsFound,
    SurvivorsPlan,
)
from catena.pipeline.tasks.scratch import (
    pack_keys,
    pack_offsets,
    read_parts,
    unpack_keys,
    unpack_offsets,
    write_parts,
)
from catena.types import ABSENT, Buffer

_keys_plan = msgspec.json.Decoder(KeysPlan)
_survivors_plan = msgspec.json.Decoder(SurvivorsPlan)
_rewrite_plan = msgspec.json.Decoder(RewritePlan)


async def run_keys(context: TaskContext, plan: bytes) -> bytes:
    return msgspec.json.encode(await find_keys(context, _keys_plan.decode(plan)))


async def run_survivors(context: TaskContext, plan: bytes) -> bytes:
    return msgspec.json.encode(await find_survivors(context, _survivors_plan.decode(plan)))


async def run_rewrite(context: TaskContext, plan: bytes) -> bytes:
    return msgspec.json.encode(await rewrite(context, _rewrite_plan.decode(plan)))


async def find_keys(context: TaskContext, plan: KeysPlan) -> KeysFound:
    finder = KeyFinder(plan.tp, plan.job.encode())
    async for body in _bodies(context.objects, plan.segments):
        finder.add(body)
    buckets = divide(finder.finish(), plan.buckets)
    parts = await write_parts(context.objects, plan, context.entropy.hex_id(), map(pack_keys, buckets))
    return KeysFound(parts, finder.opaque)


async def find_survivors(context: TaskContext, plan: SurvivorsPlan) -> SurvivorsFound:
    found = [unpack_keys(body) for body in await read_parts(context.objects, plan, plan.parts)]
    if any(left.marked[-1] >= right.marked[0] for left, right in pairwise(found)):
        raise Corrupt(f"{plan.tp}: keys of scratch are not in the order of offsets")
    last = merged(found)
    goes = last.is_tombstone & (last.offset < plan.tombstones_below)
    offsets = last.offset[~goes]
    bounds = np.searchsorted(offsets, plan.ends).tolist()
    groups = [offsets[start:end] for start, end in pairwise([0, *bounds])]
    if bounds[-1] != len(offsets):
        raise Corrupt(f"{plan.tp}: keys of scratch lie beyond offset {plan.ends[-1]}")
    parts = await write_parts(context.objects, plan, context.entropy.hex_id(), map(pack_offsets, groups))
    return SurvivorsFound(parts, last.rows, int(goes.sum()))


async def rewrite(context: TaskContext, plan: RewritePlan) -> Rewritten:
    survivors = unpack_offsets(await read_parts(context.objects, plan, plan.survivors))
    thinner = Thinner(plan.tp)
    async for body in _bodies(context.objects, plan.segments):
        thinner.add(body, survivors)
    batches = thinner.finish()
    if thinner.opaque != plan.opaque:
        raise Corrupt(
            f"{plan.tp}: the stages of a compaction do not agree on which batches can't be decoded, {plan.opaque} and "
            f"{thinner.opaque}: do all workers run the same release?"
        )
    if thinner.survivors != len(survivors):
        first, last = plan.segments[0].base, plan.segments[-1].end - 1
        raise Corrupt(
            f"{plan.tp}, offsets {first} to {last}: {len(survivors)} records are to stay, of which "
            f"{thinner.survivors} are there"
        )
    if not thinner.removed:
        return Rewritten(None, thinner.records, 0)
    return Rewritten(await _write(context, plan, batches, thinner.records), thinner.records, thinner.removed)


async def _write(context: TaskContext, plan: RewritePlan, batches: list[bytes], records: int) -> SegmentInfo:
    key = keys.segment(plan.tp, plan.job, context.entropy.hex_id())
    header = SegmentHeader(
        version=segments.COMPACTED,
        cluster_id=plan.cluster_id,
        topic=plan.topic,
        topic_id=plan.topic_id,
        partition=plan.partition,
        base_offset=plan.segments[0].base,
        end_offset=plan.segments[-1].end,
        created_at_ms=context.clock.now_ms(),
        appended_at_ms=max(info.appended_at_ms for info in plan.segments),
        compaction_id=plan.job,
        records=records,
    )
    body: Buffer = b"".join(batches)
    batches.clear()  # they are twice in memory until here, and not while the segment is stored
    encoded = segments.encode(key, header, [body], [Source(f"{key}, new")])
    with suppress(Conflict):  # an earlier try of ours: the name is known to nobody else
        await context.objects.put(key, encoded.buffers, ABSENT)
    return encoded.info


async def _bodies(objects: ObjectStore, infos: tuple[SegmentInfo, ...]) -> AsyncIterator[Body]:
    for info in infos:
        async for offset, position, data in read_bodies(objects, info):
            yield Body(data, offset, Source(info.key, position))


def divide(last: LastOfKeys, buckets: int) -> Iterator[LastOfKeys]:
    """By the hash of the key: in each there are as many of the possible ones. Rows stay in their order."""
    half = np.uint64(32)
    bucket = (last.high >> half) * np.uint64(buckets) >> half
    # Numbers so small numpy sorts by counting.
    order = np.argsort(bucket.astype(np.uint16 if buckets <= 1 << 16 else np.uint32), kind="stable")
    ends = np.cumsum(np.bincount(bucket.astype(np.int64), minlength=buckets)).tolist()
    for start, end in pairwise([0, *ends]):
        yield last.take(order[start:end])
