"""Logs with keys, drivers that compact them, and what a log is to hold before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from catena.formats.compression import Compression
from catena.formats.manifest import Manifest
from catena.formats.record_batch import parse_header
from catena.formats.records import Record, build_batch, iter_records
from catena.loglets.base import Entry
from catena.meta import keys
from catena.pipeline import tier
from catena.pipeline.compact import CompactPlace
from catena.pipeline.compact_pass import CompactionReport, CompactPass, plan_all
from catena.pipeline.settings import CompactSettings
from catena.types import Offset
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_configs import TopicSettings, settings_of
from catena.virtual_log.topics import decode_topic
from tests.pipeline.drivers import EVERYTHING, Driver, Steps
from tests.virtual_log.cluster import Cluster

SMALL = CompactSettings(group_bytes=4000, group_records=60, bucket_records=25)
POLICY = {"cleanup.policy": "compact"}

State = Mapping[bytes, bytes]


class Keyed(NamedTuple):
    key: bytes | None
    value: bytes | None


def entry(
    *records: Keyed,
    compression: Compression = Compression.NONE,
    stamp: tuple[int, int, int] = (-1, -1, -1),
    at_ms: int = 0,
) -> Entry:
    """One batch."""
    data = build_batch(
        [(key, value, (), at_ms) for key, value in records],
        compression=compression,
        producer_id=stamp[0],
        producer_epoch=stamp[1],
        base_sequence=stamp[2],
    )
    return Entry(parse_header(data), data)


async def overwrite(log: VirtualLog, keys: int, times: int, start: int = 0, per_batch: int = 4) -> None:
    """Each key so many times, one after the other; a batch has a few of them."""
    records = [
        Keyed(b"key %d" % (number % keys), b"%d %s" % (start + number, b"x" * 100)) for number in range(keys * times)
    ]
    for first in range(0, len(records), per_batch):
        await log.append(entry(*records[first : first + per_batch]))


async def read_records(log: VirtualLog, start: Offset = 0, max_bytes: int = 700) -> list[Record]:
    """Every record from `start` to the tail, in small steps. Batches take every offset once."""
    tail, found = await log.tail(), list[Record]()
    at = start
    while at < tail:
        for batch in await log.read(at, max_bytes):
            assert batch.offset <= at < batch.end, f"{batch.offset} to {batch.end} at {at}"
            found += [record for record in iter_records(batch.data, batch.offset) if record.offset >= at]
            at = batch.end
    assert at >= tail
    assert [record.offset for record in found] == sorted({record.offset for record in found})
    return found


async def read_anew(cluster: Cluster, start: Offset = 0, partition: int = 0) -> list[Record]:
    """By a node that has just started; others may go by what they have seen for some seconds."""
    return await read_records(await (await cluster.node()).log(partition), start)


def state_of(records: Sequence[Record]) -> dict[bytes, bytes]:
    """What whoever rebuilds its state from the log has in the end."""
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.key is not None and record.value is not None:
            state[record.key] = record.value
        elif record.key is not None:
            state.pop(record.key, None)
    return state


def compacted(records: Sequence[Record], end: Offset, tombstones_below: Offset = 0) -> list[Record]:
    """What a compaction up to `end` is to leave of these."""
    last = {record.key: record.offset for record in records if record.offset < end}
    return [
        record
        for record in records
        if record.offset >= end
        or record.key is None
        or (last[record.key] == record.offset and (record.value is not None or record.offset >= tombstones_below))
    ]


class Compactor(Driver):
    """A driver that tiers, and compacts what is tiered."""

    def __init__(self, cluster: Cluster, steps: Steps | None = None, compacting: CompactSettings = SMALL) -> None:
        super().__init__(cluster, steps)
        self.compacting = compacting

    async def named(self) -> Compactor:
        """One that knows which cluster this is."""
        self.site = self.site._replace(cluster_id=(await self.cluster.node()).node.cluster_id)
        return self

    async def where(self, *partitions: int, **configs: str) -> list[CompactPlace]:
        """The topic gets these configs, and has no others."""
        named = POLICY | {name.replace("_", "."): value for name, value in configs.items()}
        topic: TopicSettings = settings_of(named)
        places = await self.places(*(partitions or (0,)))
        await self.configure(places[0].tp.topic, named)
        return [CompactPlace(place, topic) for place in places]

    async def configure(self, name: str, configs: Mapping[str, str]) -> None:
        """Not by the driver, whose steps are counted."""
        meta = self.cluster.stores.meta
        record = await meta.get(keys.topic(name))
        assert record is not None
        topic = msgspec.structs.replace(decode_topic(record), configs=dict(configs))
        await meta.put(record.key, msgspec.json.encode(topic))

    def compact_pass(self) -> CompactPass:
        return CompactPass(self.site, self.work, self.compacting)

    async def compact(self, *partitions: int, **configs: str) -> list[CompactionReport]:
        return await self.compact_pass().run(await self.where(*partitions, **configs))

    async def tier_and_compact(self, *partitions: int, **configs: str) -> list[CompactionReport]:
        for report in await self.tier(*partitions, force_up_to=EVERYTHING):
            assert report.outcome in ("tiered", "idle"), report
        return await self.compact(*partitions, **configs)

    async def tier_and_plan(self, *partitions: int, **configs: str) -> list[CompactionReport]:
        await self.tier(*partitions, force_up_to=EVERYTHING)
        return await plan_all(self.site, await self.where(*partitions, **configs), self.compacting)

    async def manifest(self, partition: int = 0) -> Manifest:
        (place,) = await self.places(partition)
        found = await tier.load_manifest(self.site, place.tp, (await self.site.chains.load(*place)).chain)
        assert found is not None
        return found
