"""Audits of a test's cluster, logs with every kind of history, and ways to spoil what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from catena.formats import manifest as manifests
from catena.formats import wal_blob
from catena.formats.bytes_batch import encode as encode_old
from catena.formats.compression import Compression
from catena.formats.manifest import Manifest
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.formats.segment import SegmentInfo
from catena.loglets.base import Entry
from catena.loglets.diskless.records import Control, IndexEntry, decode_control, decode_index_entry, encode
from catena.meta import keys
from catena.pipeline.audit import AuditReport, audit
from catena.pipeline.defects import Defect
from catena.pipeline.settings import AuditSettings, TierSettings
from catena.pipeline.site import Place
from catena.testing.contracts.loglet import Stamp, make_entry
from catena.types import Offset, TopicPartition
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain
from catena.virtual_log.log import VirtualLog
from tests.pipeline.drivers import SMALL, Driver, Steps, append_numbers
from tests.virtual_log.cluster import Cluster

TINY = AuditSettings(task_bytes=3000, max_runs=1000)


async def driver(cluster: Cluster, steps: Steps | None = None, settings: TierSettings = SMALL) -> Driver:
    """One that knows which cluster this is."""
    made = Driver(cluster, steps, settings)
    made.site = made.site._replace(cluster_id=(await cluster.node()).node.cluster_id)
    return made


async def tier(cluster: Cluster, *partitions: int, settings: TierSettings = SMALL, **up_to: Any) -> None:
    for report in await (await driver(cluster, settings=settings)).tier(*partitions, **up_to):
        assert report.outcome in ("tiered", "idle"), report


async def audited(cluster: Cluster, *partitions: int, settings: AuditSettings = TINY) -> AuditReport:
    auditor = await driver(cluster)
    return await audit(auditor.site, auditor.work, await auditor.places(*(partitions or (0,))), settings)


async def found(cluster: Cluster, *partitions: int) -> list[tuple[str, str, tuple[Offset, Offset]]]:
    """What an audit finds: kind, key and offsets of each."""
    report = await audited(cluster, *partitions)
    assert not report.unchecked, report.unchecked
    assert report.ok is not any(each.severity == "damage" for each in report.defects)
    return [told(each) for each in report.defects]


def told(each: Defect) -> tuple[str, str, tuple[Offset, Offset]]:
    assert each.what
    return each.kind, each.key, each.offsets


async def place_of(cluster: Cluster, partition: int = 0) -> Place:
    (place,) = await (await driver(cluster)).places(partition)
    return place


async def log_of(cluster: Cluster, partition: int = 0) -> VirtualLog:
    return await (await cluster.node()).log(partition)


NO_PRODUCER = Stamp(-1, -1, -1)


def batch_entry(*values: str, stamp: Stamp = NO_PRODUCER, time: int = 0, **kind: Any) -> Entry:
    data = build_batch(
        [(None, value.encode(), (), time) for value in values],
        producer_id=stamp.producer_id,
        producer_epoch=stamp.epoch,
        base_sequence=stamp.sequence,
        **kind,
    )
    return Entry(parse_header(data), data)


async def append_stamped(log: VirtualLog, start: int, count: int, producer: int = 7, epoch: int = 0) -> None:
    for number in range(start, start + count):
        await log.append(make_entry(f"{number} {'x' * 300}", stamp=Stamp(producer, epoch, number), timestamp_ms=number))


async def add_old_data(cluster: Cluster, tp: TopicPartition) -> Offset:
    """Before all else: runs as earlier versions have left them. Returns where they end."""
    body = encode_old([b"a", b"b", b"c"])
    objects, meta = cluster.stores.objects, cluster.stores.meta
    await objects.put("llog/orders/partitions/0/data/wal/1", [body])
    await objects.put("llog/wal-shared/old", [b"prefix" + body])
    batch = build_batch([(None, b"d", (), 5)])
    await objects.put("llog/orders/partitions/0/data/wal/2", [batch])
    old = "bytes-batch-v1"
    for entry in (
        IndexEntry(2, 3, "s3://bucket/llog/orders/partitions/0/data/wal/1", created_at_ms=77, encoding=old),
        IndexEntry(5, 3, "s3://bucket/llog/wal-shared/old", len(body), 6, created_at_ms=77, encoding=old),
        IndexEntry(6, 1, "llog/orders/partitions/0/data/wal/2"),
    ):
        await meta.put(keys.index(tp, entry.end_offset), encode(entry))
    await meta.put(keys.control(tp), encode(Control(1, "OPEN", 7)))
    return 7


async def fill_with_history(cluster: Cluster) -> None:
    """Partitions 0 to 4: old data, several links, trims, tiered, merged, producers, compression, nothing at all."""
    old = await log_of(cluster)
    await add_old_data(cluster, old.tp)
    await append_stamped(await log_of(cluster), 0, 3)
    merging = msgspec.structs.replace(SMALL, segment_bytes=20_000)
    log = await log_of(cluster, 1)
    for compression in Compression:
        await log.append(batch_entry("a", "b" * 500, time=compression.value, compression=compression))
        await tier(cluster, 1, settings=merging)
    await tier(cluster, 1, settings=merging)
    await log.append(batch_entry("e", time=9, log_append_time=20))
    log = await log_of(cluster, 2)
    await append_stamped(log, 0, 8)
    await tier(cluster, 2)
    await log.trim(3)
    await append_stamped(log, 8, 3)
    await log.reconfigure("memory")
    await append_stamped(log, 11, 2)
    await log.reconfigure("diskless")
    await append_stamped(log, 13, 2)
    await append_stamped(log, 0, 3, epoch=1)
    await log.reconfigure("diskless")
    await append_stamped(log, 3, 2, epoch=1)
    log = await log_of(cluster, 3)
    await log.append(make_entry("a", "b", "c"))
    await log.append(make_entry("d"))
    await log.trim(2)
    await log.seal()


async def index_of(cluster: Cluster, tp: TopicPartition) -> list[IndexEntry]:
    prefix = keys.index_prefix(tp)
    records = await cluster.stores.meta.scan(prefix, keys.after(prefix))
    return [decode_index_entry(record.key, record.value) for record in records]


async def chain_of(cluster: Cluster, partition: int = 0) -> Chain:
    return (await cluster.chains.load(*await place_of(cluster, partition))).chain


async def manifest_of(cluster: Cluster, partition: int = 0) -> tuple[str, Manifest]:
    link = (await chain_of(cluster, partition)).tiered
    assert link is not None
    key = link.params["manifest"]
    return key, manifests.decode((await cluster.stores.objects.get(key)).data, key)


async def put_entry(cluster: Cluster, tp: TopicPartition, entry: IndexEntry, **changes: Any) -> str:
    changed = msgspec.structs.replace(entry, **changes)
    key = keys.index(tp, changed.end_offset)
    await cluster.stores.meta.put(key, encode(changed))
    return key


async def change_chain(cluster: Cluster, **fields: Any) -> None:
    """As no function of the chain's would."""
    place = await place_of(cluster)
    chain = msgspec.structs.replace(await chain_of(cluster), **fields)
    await cluster.stores.meta.put(keys.chain(place.tp), msgspec.json.encode(chains.signed(chain, "planted")))


async def change_control(cluster: Cluster, tp: TopicPartition, change: Callable[[Control], Control]) -> None:
    record = await cluster.stores.meta.get(keys.control(tp))
    assert record is not None
    await cluster.stores.meta.put(record.key, encode(change(decode_control(record.key, record.value))))


async def spoil(cluster: Cluster, key: str, change: Callable[[bytearray], bytes | bytearray | None]) -> None:
    """Change an object in place."""
    data = bytearray((await cluster.stores.objects.get(key)).data)
    changed = change(data)
    await cluster.stores.objects.put(key, [data if changed is None else changed])


async def flip(cluster: Cluster, key: str, at: int) -> None:
    def change(data: bytearray) -> None:
        data[at] ^= 0x10

    await spoil(cluster, key, change)


async def section_start(cluster: Cluster, key: str) -> int:
    return wal_blob.decode_header((await cluster.stores.objects.get(key)).data).header_bytes


async def collect_orphans(cluster: Cluster, *places: Place) -> None:
    """What vacuum does, without patience: everything that is not referred to now is gone."""
    kept: set[str] = set()
    stores = cluster.stores
    for place in places:
        chain = (await cluster.chains.load(*place)).chain
        if chain.deleted:
            continue
        kept |= {entry.data_key for entry in await index_of(cluster, place.tp) if entry.end_offset >= chain.boundary}
        record = await stores.meta.get(keys.control(place.tp))
        control = None if record is None else decode_control(record.key, record.value)
        if control is not None and control.pending is not None:
            kept |= {entry.data_key for entry in control.pending.entries}
        if chain.tiered is not None:
            key = chain.tiered.params["manifest"]
            manifest = manifests.decode((await stores.objects.get(key)).data, key)
            kept |= {key, *(segment.key for segment in manifest.segments)}
    mine = ("/segments/", "/manifests/", "/wal-shared/")
    gone = [info.key async for info in stores.objects.list("llog/") if info.key not in kept]
    await stores.objects.delete([key for key in gone if any(part in key for part in mine)])


async def in_wal(cluster: Cluster) -> TopicPartition:
    """10 runs of one offset each."""
    await append_numbers(cluster, 10)
    tp = (await place_of(cluster)).tp
    assert await found(cluster) == []
    return tp


async def in_segments(cluster: Cluster) -> tuple[TopicPartition, list[SegmentInfo]]:
    """20 offsets in segments, a few in each."""
    await append_numbers(cluster, 20)
    await tier(cluster)
    assert await found(cluster) == []
    return (await place_of(cluster)).tp, list((await manifest_of(cluster))[1].segments)
