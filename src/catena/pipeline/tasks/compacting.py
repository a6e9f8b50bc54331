"""The tasks of a compaction: three stages, so that memory is bounded however large a log is, and no value moves.

    keys        of each group of segments: the last record of each of its keys,       group 1   group 2   group 3
                divided into buckets by the hash of the key                             | \\ / |  \\ / | \\ /  |
    survivors   of each bucket: which of these records are the last of their key      bucket 1    bucket 2    ...
                in all groups, but for marks of deleted keys that may go                | / \\ |  / \\ |
    rewrite     of each group: a segment with these records only                      group 1   group 2   group 3

A stage hands over by scratch objects (`scratch`). What a task holds is bounded by the group or the bucket.

A record is lost if a later stage does not get what an earlier one found: so what is rewritten is counted. Every
survivor has to be found among the records, else nothing is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import pairwise

import msgspec
import numpy as np

from catena.columns.gather import Body
from catena.columns.last_of_keys import LastOfKeys, find_last, merged
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
    OfJob,
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

MERGED_ROWS = 1_000_000
"""So many more keys are held before those that are there twice are let go."""


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
    found: list[LastOfKeys] = []
    rows = 0
    async for body in _bodies(context.objects, plan.segments):
        for part in find_last([body], plan.tp, plan.job.encode()):
            found.append(part)
            rows += part.rows
        if rows > MERGED_ROWS:
            found, rows = [merged(found)], 0
    parts = await write_parts(context.objects, _scratch(context, plan), _buckets(merged(found), plan.buckets))
    return KeysFound(parts)


async def find_survivors(context: TaskContext, plan: SurvivorsPlan) -> SurvivorsFound:
    last = merged([unpack_keys(body) for body in await read_parts(context.objects, plan.parts)])
    goes = last.is_tombstone & (last.offset < plan.tombstones_below)
    offsets = np.sort(last.offset[~goes])
    bounds = np.searchsorted(offsets, plan.ends).tolist()
    groups = [offsets[start:end] for start, end in pairwise([0, *bounds])]
    if bounds[-1] != len(offsets):
        raise Corrupt(f"{plan.tp}: keys of scratch lie beyond offset {plan.ends[-1]}")
    parts = ((len(group), pack_offsets(group)) for group in groups)
    told = await write_parts(context.objects, _scratch(context, plan), parts)
    return SurvivorsFound(told, last.rows, int(goes.sum()))


async def rewrite(context: TaskContext, plan: RewritePlan) -> Rewritten:
    survivors = unpack_offsets(await read_parts(context.objects, plan.survivors))
    thinner = Thinner(plan.tp)
    async for body in _bodies(context.objects, plan.segments):
        thinner.add(body, survivors)
    batches = thinner.finish()
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
    encoded = segments.encode(key, header, [body], [Source(f"{key}, new")])
    with suppress(Conflict):  # an earlier try of ours: the name is known to nobody else
        await context.objects.put(key, encoded.buffers, ABSENT)
    return encoded.info


async def _bodies(objects: ObjectStore, infos: tuple[SegmentInfo, ...]) -> AsyncIterator[Body]:
    for info in infos:
        async for offset, position, data in read_bodies(objects, info):
            yield Body(data, offset, Source(info.key, position))


def _buckets(last: LastOfKeys, buckets: int) -> Iterator[tuple[int, bytes]]:
    """`last` is in the order of hashes, and so are buckets: each has as many of the possible ones."""
    edges = [-(-(number << 64) // buckets) for number in range(1, buckets)]
    bounds = [0, *np.searchsorted(last.high, np.array(edges, np.uint64)).tolist(), last.rows]
    for start, end in pairwise(bounds):
        yield end - start, pack_keys(LastOfKeys(*(column[start:end] for column in last)))


def _scratch(context: TaskContext, plan: OfJob) -> str:
    return keys.segment(plan.tp, plan.job, context.entropy.hex_id())
