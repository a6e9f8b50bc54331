"""Everyone who reads a log bears that records are missing from it: reads, searches, extents, queries, audit, vacuum."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from catena import jobs
from catena.config import load
from catena.embedded import open_log
from catena.formats import manifest as manifests
from catena.formats import segment as segments
from catena.formats.records import Record
from catena.formats.segment import SegmentHeader
from catena.meta import keys
from catena.source.reading import fetch_extents, read_split
from catena.source.splitting import Split
from catena.types import Buffer
from catena.virtual_log.extents import find_extents
from catena.virtual_log.log import VirtualLog
from tests.jobs.topics import inline
from tests.pipeline.auditing import audited
from tests.pipeline.auditing import found as found_by_audit
from tests.pipeline.compacting import Compactor, Keyed, compacted, entry, overwrite, read_anew, read_records
from tests.pipeline.test_compactions import DiesAt
from tests.pipeline.vacuums import AgingCluster, aging_cluster
from tests.virtual_log.cluster import Cluster

KEYS, TIMES = 6, 20
END = KEYS * TIMES


async def fill(cluster: Cluster) -> tuple[VirtualLog, list[Record]]:
    """A compacted log, with something that is not tiered behind it; and what is left of it."""
    log = await (await cluster.node()).log()
    for number in range(END):
        await log.append(entry(Keyed(b"%d" % (number % KEYS), b"%d" % number), at_ms=1000 + number))
    await log.append(entry(Keyed(b"rare", b"x"), at_ms=9000))
    await overwrite(log, KEYS, TIMES)
    driver = await Compactor(cluster).named()
    before = await read_records(log)
    await driver.tier_and_compact()
    await log.append(entry(Keyed(b"0", b"new"), at_ms=5000))
    left = compacted(before, 2 * END + 1) + await read_records(log, 2 * END + 1)
    assert [record.offset for record in left[:2]] == [END - 6, END - 5]
    return await (await cluster.node()).log(), left


class TestReads:
    async def test_from_every_offset(self, cluster: Cluster) -> None:
        log, left = await fill(cluster)
        for start in range(await log.tail() + 1):
            assert await read_records(log, start) == [record for record in left if record.offset >= start]

    async def test_times_are_found_among_what_is_left(self, cluster: Cluster) -> None:
        log, left = await fill(cluster)
        for time in (0, 1000, 1050, 1000 + END - 3, 2000, 5000, 9000, 9001):
            expected = next((record for record in left if record.timestamp >= time), None)
            found = await log.find_time(time)
            assert (found and found.offset) == (expected and expected.offset), time
        newest = await log.find_max_time()
        assert newest is not None
        assert (newest.offset, newest.timestamp_ms) == (END, 9000)

    async def test_sizes_and_times_of_runs_are_told(self, cluster: Cluster) -> None:
        log, _ = await fill(cluster)
        runs = await log.runs(0, 1000)
        assert runs[-1].end == await log.tail()
        assert all(run.size > 0 for run in runs)


async def rows_of(
    cluster: Cluster, log: VirtualLog, columns: list[str], start: int, end: int
) -> list[dict[str, object]]:
    """By a task of a query."""
    extents = tuple(await find_extents(log, start, end))
    found = dict(zip(extents, await fetch_extents(cluster.stores.objects, extents), strict=True))
    split = Split(*log.tp, start, end, extents)
    batches = read_split(split, columns, lambda wanted: [found[extent] for extent in wanted])
    return [row for batch in batches for row in batch.to_pylist()]


class TestQueries:
    async def test_rows_are_what_is_left(self, cluster: Cluster) -> None:
        log, left = await fill(cluster)
        tail = await log.tail()
        for start, end in ((0, tail), (1, 5), (0, END), (END - 2, END + 1), (END + 5, tail - 3)):
            expected = [
                {"offset": each.offset, "key": each.key, "value": each.value}
                for each in left
                if start <= each.offset < end
            ]
            assert await rows_of(cluster, log, ["offset", "key", "value"], start, end) == expected

    async def test_offsets_alone_are_counted_right_where_headers_of_batches_would_tell_more(
        self, cluster: Cluster
    ) -> None:
        log, left = await fill(cluster)
        found = await rows_of(cluster, log, ["offset"], 0, await log.tail())
        assert [row["offset"] for row in found] == [each.offset for each in left]


class TestAudit:
    async def test_a_compacted_log_is_sound(self, cluster: Cluster) -> None:
        log, _ = await fill(cluster)
        report = await audited(cluster)
        assert (report.ok, report.offsets) == (True, await log.tail())

    async def test_idempotent_producers_break_off_and_go_on(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        driver = await Compactor(cluster).named()
        for number in range(60):
            await log.append(entry(Keyed(b"%d" % (number % 3), b"x" * 50), stamp=(7, 0, number)))
            if number == 40:
                await driver.tier_and_compact()
        assert await found_by_audit(cluster) == []
        await driver.tier_and_compact(min_cleanable_dirty_ratio="0")
        again = await (await cluster.node()).log()
        await again.append(entry(Keyed(b"0", b"next"), stamp=(7, 0, 60)))
        assert await found_by_audit(cluster) == []

    async def test_records_that_are_missing_without_a_word_are_found(self, cluster: Cluster) -> None:
        """A thinned segment that does not say so, and one that says another number."""
        await fill(cluster)
        driver = await Compactor(cluster).named()
        (place,) = await driver.places(0)
        chain = (await driver.site.chains.load(*place)).chain
        manifest = await driver.manifest()
        info = manifest.segments[0]
        data = memoryview((await cluster.stores.objects.get(info.key)).data)
        header = segments.decode_header(data)
        plain = msgspec.structs.replace(header, version=1, records=msgspec.UNSET)
        spoilt = await self.put(cluster, info.key, plain, data[info.body_at : info.index_at])
        changed = msgspec.structs.replace(manifest, segments=(spoilt, *manifest.segments[1:]))
        assert chain.tiered is not None
        key = chain.tiered.params["manifest"]
        await cluster.stores.objects.put(key, [manifests.encode(changed)])
        kinds = {kind for kind, _, _ in await found_by_audit(cluster)}
        assert "count_mismatch" in kinds

    async def put(self, cluster: Cluster, key: str, header: SegmentHeader, body: Buffer) -> segments.SegmentInfo:
        encoded = segments.encode(key, header, [bytes(body)])
        await cluster.stores.objects.put(key, encoded.buffers)
        return encoded.info


@pytest.fixture
async def aging(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[AgingCluster]:
    async with aging_cluster("memory", tmp_path, request) as cluster:
        yield cluster


class TestVacuum:
    async def test_what_was_compacted_and_scratch_of_the_dead_are_collected(self, aging: AgingCluster) -> None:
        log = await (await aging.node()).log()
        await overwrite(log, KEYS, TIMES)
        driver = Compactor(aging)
        await driver.tier()
        dying = Compactor(aging, DiesAt("segment put", 9))
        (report,) = await dying.compact_pass().run(await driver.where())
        assert report.outcome == "failed"
        aging.age()
        assert (await aging.vacuum()).failed == 0
        left = await read_anew(aging)
        assert len(left) == END, "the job may still be finished, so its objects stay, and what it is about, too"
        await aging.stores.meta.delete(keys.compactor_claim(log.tp))  # its session has expired
        (report,) = await Compactor(aging).compact()
        assert (report.outcome, report.recovered) == ("compacted", "abandoned")
        aging.age()
        await aging.vacuum()
        manifest = await driver.manifest()
        segments_left = {key for key in await aging.objects() if "/segments/" in key}
        assert segments_left == {info.key for info in manifest.segments}
        assert len(await read_anew(aging)) == KEYS


class TestPolicies:
    async def test_compact_and_delete_do_both(self, tmp_path: Path) -> None:
        settings = load(
            data=str(tmp_path),
            pipeline={
                "tier": {"min_age_ms": 0, "min_bytes": 0, "segment_bytes": 2000},
                "compact": {"group_bytes": 2000},
            },
        )
        async with open_log(settings) as log:
            await log.create_topic("t", 1)
            configs = {"cleanup.policy": "compact,delete", "retention.bytes": "3000"}
            await log.node.topics.alter_configs("t", lambda _: configs)
            for number in range(100):
                await log.append("t", f"{number} {'x' * 90}", key=f"{number % 50}")
        await jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, open_work=inline(settings))
        await jobs.compact(settings, open_work=inline(settings))
        trimmed = await jobs.retention(settings)
        assert [each.error for each in trimmed.partitions] == [""]
        async with open_log(settings) as log:
            start = await (await log.node.log("t", 0)).start()
            offsets = [record.offset async for record in log.read("t")]
        assert start > 50
        assert offsets == list(range(start, 100))
        await jobs.tier(settings, open_work=inline(settings))
        assert (await jobs.audit(settings, open_work=inline(settings))).ok
