"""Whatever is wrong with the bytes of a log is found: kind, key and offsets."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from catena.formats import manifest as manifests
from catena.formats import segment as segments
from catena.formats import wal_blob
from catena.formats.record_batch import parse_header
from catena.formats.segment import FOOTER_BYTES
from catena.pipeline.settings import AuditSettings
from catena.testing.contracts.loglet import Stamp, make_entry
from catena.types import TopicPartition
from tests.pipeline.auditing import (
    append_stamped,
    audited,
    batch_entry,
    flip,
    found,
    in_segments,
    in_wal,
    index_of,
    log_of,
    manifest_of,
    put_entry,
    section_start,
    spoil,
    tier,
)
from tests.virtual_log.cluster import Cluster


async def put_manifest(cluster: Cluster, number: int, **changes: object) -> None:
    """The manifest says something else of one segment, and is sound."""
    key, manifest = await manifest_of(cluster)
    infos = list(manifest.segments)
    infos[number] = msgspec.structs.replace(infos[number], **changes)
    await cluster.stores.objects.put(key, [manifests.encode(msgspec.structs.replace(manifest, segments=tuple(infos)))])


class TestBlobs:
    async def test_a_missing_object(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        lost = (await index_of(cluster, tp))[4].data_key
        await cluster.stores.objects.delete([lost])
        assert await found(cluster) == [("missing_object", lost, (4, 4))]

    async def test_a_truncated_object(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        key = (await index_of(cluster, tp))[4].data_key
        await spoil(cluster, key, lambda data: data[:-1])
        assert await found(cluster) == [("truncated_object", key, (4, 4))]

    async def test_an_object_that_ends_in_its_header(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        key = (await index_of(cluster, tp))[4].data_key
        await spoil(cluster, key, lambda data: data[:5])
        assert await found(cluster) == [("truncated_object", key, (4, 4))]

    async def test_any_flipped_byte(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        entry = (await index_of(cluster, tp))[4]
        assert entry.byte_length is not None
        start = await section_start(cluster, entry.data_key)
        for at in range(0, start + entry.byte_length, 3):
            await flip(cluster, entry.data_key, at)
            kind = "corrupt_header" if at < start else "corrupt_batch"
            assert await found(cluster) == [(kind, entry.data_key, (4, 4))], at
            await flip(cluster, entry.data_key, at)
        assert await found(cluster) == []

    async def test_a_blob_of_many_partitions_is_each_ones_own(self, cluster: Cluster) -> None:
        node = await cluster.node()
        logs = [await node.log(number) for number in range(3)]
        await asyncio.gather(*(log.append(make_entry(f"{log.tp} {'x' * 200}")) for log in logs))
        (entry,) = await index_of(cluster, logs[1].tp)
        assert {each.data_key for log in logs for each in await index_of(cluster, log.tp)} == {entry.data_key}
        await flip(cluster, entry.data_key, entry.byte_offset + 100)
        report = await audited(cluster, 0, 1, 2)
        assert [(each.kind, each.partition) for each in report.defects] == [("corrupt_batch", 1)]
        assert report.offsets == 2

    async def test_a_run_of_another_partition(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        other = await log_of(cluster, 1)
        await other.append(make_entry(f"0 {'x' * 300}"))
        mine, theirs = (await index_of(cluster, tp))[4], (await index_of(cluster, other.tp))[0]
        same = {"end_offset": mine.end_offset, "append_id": mine.append_id}
        await put_entry(cluster, tp, theirs, **same)
        assert await found(cluster) == [("foreign_run", theirs.data_key, (4, 4))]

    async def test_an_index_that_says_another_time(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        entry = (await index_of(cluster, tp))[4]
        for time in (-1, 5):
            await put_entry(cluster, tp, entry, max_timestamp=time)
            assert await found(cluster) == [("wrong_timestamp", entry.data_key, (4, 4))]
        await put_entry(cluster, tp, entry, created_at_ms=entry.created_at_ms + 1)
        assert await found(cluster) == [("header_mismatch", entry.data_key, (4, 4))]

    async def test_an_index_that_says_other_bytes(self, cluster: Cluster) -> None:
        log = await log_of(cluster)
        await log.append(make_entry("a", "b"))
        (entry,) = await index_of(cluster, log.tp)
        assert entry.byte_length is not None
        await put_entry(cluster, log.tp, entry, byte_length=entry.byte_length - 1)
        assert await found(cluster) == [("corrupt_batch", entry.data_key, (0, 1))]
        await put_entry(cluster, log.tp, entry, byte_offset=entry.byte_offset - 1)
        assert {kind for kind, _, _ in await found(cluster)} == {"header_mismatch", "corrupt_batch"}


class TestSegments:
    async def test_a_missing_object(self, cluster: Cluster) -> None:
        _, infos = await in_segments(cluster)
        await cluster.stores.objects.delete([infos[1].key])
        assert await found(cluster) == [("missing_object", infos[1].key, (infos[1].base, infos[1].end - 1))]

    async def test_a_truncated_object(self, cluster: Cluster) -> None:
        _, infos = await in_segments(cluster)
        offsets = (infos[1].base, infos[1].end - 1)
        await spoil(cluster, infos[1].key, lambda data: data[:-1])
        assert await found(cluster) == [("truncated_object", infos[1].key, offsets)]

    async def test_an_object_with_more_bytes(self, cluster: Cluster) -> None:
        _, infos = await in_segments(cluster)
        await spoil(cluster, infos[1].key, lambda data: data + b"x")
        assert await found(cluster) == [("segment_mismatch", infos[1].key, (infos[1].base, infos[1].end - 1))]

    async def test_any_flipped_byte(self, cluster: Cluster) -> None:
        _, infos = await in_segments(cluster)
        info = infos[1]
        offsets = (info.base, info.end - 1)
        for at in range(0, info.size, 7):
            await flip(cluster, info.key, at)
            kind = "corrupt_header" if at < info.body_at else "corrupt_batch"
            if at >= info.index_at:
                kind = "corrupt_index" if at < info.size - FOOTER_BYTES else "corrupt_footer"
            assert await found(cluster) == [(kind, info.key, offsets)], at
            await flip(cluster, info.key, at)
        assert await found(cluster) == []

    async def test_a_segment_of_another_topic(self, cluster: Cluster) -> None:
        _, infos = await in_segments(cluster)
        info = infos[1]
        data = (await cluster.stores.objects.get(info.key)).data
        header = segments.decode_header(data)
        for field, value in (("topic_id", "f" * 32), ("partition", 5), ("cluster_id", "e" * 32), ("topic", "other")):
            changed = msgspec.structs.replace(header, **{field: value})
            encoded = segments.encode(info.key, changed, [data[info.body_at : info.index_at]])
            await cluster.stores.objects.put(info.key, encoded.buffers)
            new = msgspec.structs.asdict(encoded.info)
            await put_manifest(cluster, 1, **new)
            kinds = [(kind, offsets) for kind, key, offsets in await found(cluster) if key == info.key]
            assert kinds == [("foreign_segment", (info.base, info.end - 1))], field

    async def test_a_manifest_that_says_another_time(self, cluster: Cluster) -> None:
        _, infos = await in_segments(cluster)
        for field in ("max_timestamp", "min_timestamp"):
            await put_manifest(cluster, 1, **{field: 77})
            assert await found(cluster) == [("wrong_timestamp", infos[1].key, (infos[1].base, infos[1].end - 1))]
            await put_manifest(cluster, 1, **{field: 0})

    async def test_a_manifest_that_says_something_else(self, cluster: Cluster) -> None:
        _, infos = await in_segments(cluster)
        for field in ("batches", "created_at_ms", "appended_at_ms"):
            await put_manifest(cluster, 1, **{field: 77})
            assert await found(cluster) == [("segment_mismatch", infos[1].key, (infos[1].base, infos[1].end - 1))]
            await put_manifest(cluster, 1, **{field: getattr(infos[1], field)})


class TestManifest:
    async def test_it_is_missing(self, cluster: Cluster) -> None:
        await in_segments(cluster)
        key, _ = await manifest_of(cluster)
        await cluster.stores.objects.delete([key])
        assert await found(cluster) == [("missing_object", key, (0, 19))]

    async def test_any_flipped_byte(self, cluster: Cluster) -> None:
        await in_segments(cluster)
        key, _ = await manifest_of(cluster)
        size = len((await cluster.stores.objects.get(key)).data)
        for at in range(0, size, 19):
            await flip(cluster, key, at)
            assert await found(cluster) == [("corrupt_manifest", key, (0, 19))], at
            await flip(cluster, key, at)

    async def test_it_is_of_another_partition(self, cluster: Cluster) -> None:
        await in_segments(cluster)
        key, manifest = await manifest_of(cluster)
        wrong = msgspec.structs.replace(manifest, partition=3)
        await cluster.stores.objects.put(key, [manifests.encode(wrong)])
        assert await found(cluster) == [("manifest_mismatch", key, (0, 19))]

    async def test_it_ends_elsewhere(self, cluster: Cluster) -> None:
        await in_segments(cluster)
        key, manifest = await manifest_of(cluster)
        *kept, last = manifest.segments
        wrong = msgspec.structs.replace(manifest, end=last.base, segments=tuple(kept))
        await cluster.stores.objects.put(key, [manifests.encode(wrong)])
        kinds = await found(cluster)
        assert {kind for kind, _, _ in kinds} == {"manifest_mismatch"}
        assert ("manifest_mismatch", key, (0, 19)) in kinds


class TestProducers:
    async def plant(self, cluster: Cluster, *sequences: int) -> TopicPartition:
        """Offsets from 0 on with these sequences, as no log would take them."""
        log = await log_of(cluster)
        for producer, sequence in enumerate(sequences):
            await log.append(make_entry(f"{sequence} {'x' * 300}", stamp=Stamp(1000 + producer, 0, sequence)))
        for entry in await index_of(cluster, log.tp):
            await spoil(cluster, entry.data_key, partial(_restamped, at=entry.byte_offset))
        return log.tp

    @pytest.mark.parametrize("is_tiered", [False, True])
    async def test_a_duplicate_batch(self, cluster: Cluster, is_tiered: bool) -> None:
        tp = await self.plant(cluster, 0, 1, 2, 1, 3, 4)
        key = (await index_of(cluster, tp))[3].data_key
        if is_tiered:
            await tier(cluster)
            key = next(each.key for each in (await manifest_of(cluster))[1].segments if each.base <= 3 < each.end)
        assert await found(cluster) == [("duplicate_batch", key, (3, 3))]

    @pytest.mark.parametrize("is_tiered", [False, True])
    async def test_a_batch_that_is_missing(self, cluster: Cluster, is_tiered: bool) -> None:
        tp = await self.plant(cluster, 0, 1, 3, 4)
        key = (await index_of(cluster, tp))[2].data_key
        if is_tiered:
            await tier(cluster)
            key = next(each.key for each in (await manifest_of(cluster))[1].segments if each.base <= 2 < each.end)
        assert await found(cluster) == [("sequence_break", key, (2, 2))]

    async def test_one_is_found_however_the_log_is_cut(self, cluster: Cluster) -> None:
        await self.plant(cluster, 0, 1, 2, 3, 4, 5, 6, 3)
        for size in (1, 700, 2000, 1 << 20):
            report = await audited(cluster, settings=AuditSettings(task_bytes=size))
            assert [(each.kind, each.offsets) for each in report.defects] == [("duplicate_batch", (7, 7))], size

    async def test_behind_damage_nobody_is_known(self, cluster: Cluster) -> None:
        log = await log_of(cluster)
        await append_stamped(log, 0, 10)
        entry = (await index_of(cluster, log.tp))[4]
        await cluster.stores.objects.delete([entry.data_key])
        assert [kind for kind, _, _ in await found(cluster)] == ["missing_object"]


def _restamped(data: bytearray, at: int) -> bytes:
    """The blob, all of it sound, as if producer 7 had written the batch at this byte."""
    header = wal_blob.decode_header(data)
    sequence = parse_header(data, at).base_sequence
    entry = batch_entry(f"{sequence} {'x' * 300}", stamp=Stamp(7, 0, sequence))
    (section,) = header.partitions
    new = wal_blob.Section(
        section.topic, section.topic_id, section.partition, section.msg_count, section.encoding, [entry.data]
    )
    buffers, (start,) = wal_blob.encode(header.cluster_id, header.created_at_ms, [new])
    assert start == at
    return b"".join(buffers)
