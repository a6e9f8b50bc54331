"""Compaction keeps the last record of each key at its offset, and marks of deleted keys for their time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.errors import StaleView
from catena.formats.compression import Compression
from catena.formats.records import Record
from catena.meta import keys
from catena.pipeline import compact
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Stall
from tests.pipeline.auditing import audited
from tests.pipeline.compacting import (
    SMALL,
    Compactor,
    Keyed,
    compacted,
    entry,
    overwrite,
    read_anew,
    read_records,
    state_of,
)
from tests.pipeline.drivers import is_clean, shape
from tests.pipeline.vacuums import AgingCluster, aging_cluster
from tests.virtual_log.cluster import Cluster

A, B, C = b"a", b"b", b"c"


@pytest.fixture
async def aging(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[AgingCluster]:
    async with aging_cluster("memory", tmp_path, request) as cluster:
        yield cluster


class TestCompacting:
    async def test_the_last_record_of_each_key_stays_at_its_offset(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=10, times=30)
        before = await read_records(log)
        driver = await Compactor(cluster).named()
        (report,) = await driver.tier_and_compact()
        assert (report.outcome, report.error, report.cleaned_up_to) == ("compacted", "", 300)
        assert (report.records_before, report.records, report.keys) == (300, 10, 10)
        assert report.bytes < report.bytes_before / 5
        after = await read_anew(cluster)
        assert after == compacted(before, 300) == before[-10:]
        assert shape(await log.refresh()) == [("tiered", 0, 300), ("diskless", 300, None)]
        assert await read_records(log) == after
        await is_clean(cluster, log.tp, 300)
        assert (await audited(cluster)).ok

    async def test_nothing_is_left_of_scratch(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=10, times=30)
        driver = Compactor(cluster)
        await driver.tier_and_compact()
        manifest = await driver.manifest()
        job = manifest.segments[0].compaction_id
        prefix = f"{keys.segment_prefix(log.tp)}{job}/"
        assert {info.key async for info in cluster.stores.objects.list(prefix)} == {
            segment.key for segment in manifest.segments
        }

    async def test_time_after_time(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        expected: list[Record] = []
        for number in range(4):
            await overwrite(log, keys=7, times=9, start=1000 * number)
            expected = compacted(expected + await read_records(log, 63 * number), 63 * (number + 1))
            (report,) = await Compactor(cluster).tier_and_compact()
            assert (report.outcome, report.records) == ("compacted", 7)
            assert await read_anew(cluster) == expected
        (report,) = await Compactor(cluster).compact()
        assert report.outcome == "idle"
        assert [cleaning.end for cleaning in (await Compactor(cluster).manifest()).cleaned] == [63, 126, 189, 252]

    async def test_what_is_not_tiered_keeps_everything_and_hides_nothing(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=5, times=8)
        await Compactor(cluster).tier()
        await overwrite(log, keys=5, times=2, start=900)
        before = await read_records(log)
        await Compactor(cluster).compact()
        after = await read_anew(cluster)
        assert after == compacted(before, 40)
        assert len(after) == 15

    @pytest.mark.parametrize("compression", Compression)
    async def test_all_compressions(self, cluster: Cluster, compression: Compression) -> None:
        log = await (await cluster.node()).log()
        for number in range(20):
            records = [Keyed(b"%d" % ((number * 3 + each) % 8), b"%d" % number * 20) for each in range(3)]
            await log.append(entry(*records, compression=compression))
        before = await read_records(log)
        (report,) = await (await Compactor(cluster).named()).tier_and_compact()
        after = await read_anew(cluster)
        assert after == compacted(before, 60)
        assert 0 < report.records == len(after) < 60
        assert (await audited(cluster)).ok

    async def test_records_without_a_key_stay(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        for number in range(10):
            await log.append(entry(Keyed(None, b"%d" % number), Keyed(A, b"%d" % number)))
        before = await read_records(log)
        (report,) = await Compactor(cluster).tier_and_compact()
        assert (report.records, report.keys) == (11, 1)
        assert await read_anew(cluster) == compacted(before, 20)

    async def test_where_nothing_is_removed_segments_stay_as_they_are(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=40, times=1)
        driver = Compactor(cluster)
        await driver.tier()
        before = (await driver.manifest()).segments
        (report,) = await driver.compact()
        assert (report.outcome, report.segments, report.records) == ("compacted", 0, 40)
        manifest = await driver.manifest()
        assert manifest.segments == before
        assert manifest.cleaned_up_to == 40
        assert report.bytes == report.bytes_before
        assert (await driver.compact())[0].outcome == "idle"

    async def test_a_log_of_which_all_goes_is_a_gap(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=3, times=30)
        driver = await Compactor(cluster, compacting=SMALL).named()
        await driver.tier()
        await log.append(entry(Keyed(b"key 0", None), Keyed(b"key 1", None), Keyed(b"key 2", None)))
        await driver.tier_and_compact(delete_retention_ms="0")
        await log.append(entry(Keyed(A, b"1")))
        (report,) = await driver.tier_and_compact(delete_retention_ms="0", min_cleanable_dirty_ratio="0")
        assert (report.records, report.tombstones) == (1, 3)
        assert [record.offset for record in await read_anew(cluster)] == [93]
        assert (await audited(cluster)).ok
        (batch,) = [batch for batch in await (await (await cluster.node()).log()).read(50, 1) if batch.offset <= 50]
        assert parse_count(batch.data) == 0

    async def test_segments_below_the_start_are_let_go(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=10, times=20)
        driver = Compactor(cluster)
        await driver.tier()
        await log.trim(150)
        (report,) = await driver.compact()
        assert report.outcome == "compacted"
        manifest = await driver.manifest()
        assert 0 < manifest.base <= 150
        assert [record.offset for record in await read_anew(cluster, 150)] == list(range(190, 200))

    async def test_a_trim_meanwhile_counts(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=10, times=20)
        driver = Compactor(cluster)
        await driver.tier()
        stall = driver.steps.at("manifest put", Stall())
        compacting = asyncio.ensure_future(driver.compact())
        await soon(stall.reached.wait())
        await log.trim(195)
        stall.let_go()
        (report,) = await compacting
        assert report.outcome == "compacted"
        assert (await log.refresh()).start == 195
        assert [record.offset for record in await read_anew(cluster, 195)] == list(range(195, 200))

    async def test_a_plan_that_does_not_fit_any_more_is_not_begun(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=10, times=3)
        driver = Compactor(cluster)
        await driver.tier()
        (where,) = await driver.where()
        plan = await compact.make_plan(driver.site, where, SMALL)
        assert plan is not None
        await driver.compact()
        with pytest.raises(StaleView):
            await compact.begin(driver.site, plan)

    async def test_only_topics_that_say_so_are_compacted(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await overwrite(log, keys=10, times=3)
        driver = Compactor(cluster)
        await driver.tier()
        (report,) = await driver.compact(cleanup_policy="delete")
        assert report.outcome == "idle"

    async def test_what_is_compacted_can_be_merged(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        before = []
        for number in range(5):
            await overwrite(log, keys=3, times=4, start=100 * number)
            before += await read_records(log, 12 * number)
            await Compactor(cluster).tier()
        driver = await Compactor(cluster, compacting=SMALL).named()
        driver.compacting = type(SMALL)(group_bytes=1, group_records=1, bucket_records=5)
        await driver.compact()
        counts = [segment.record_count for segment in (await driver.manifest()).segments]
        assert len(counts) >= 5
        (report,) = await driver.tier()
        assert report.merged
        manifest = await driver.manifest()
        assert sum(segment.record_count for segment in manifest.segments) == 3 < len(counts)
        assert manifest.cleaned_up_to == 60
        assert await read_anew(cluster) == compacted(before, 60)
        assert (await audited(cluster)).ok


def parse_count(batch: memoryview) -> int:
    return int.from_bytes(batch[57:61], "big")


class TestTombstones:
    async def fill(self, cluster: AgingCluster) -> None:
        log = await (await cluster.node()).log()
        await log.append(entry(Keyed(A, b"1"), Keyed(B, b"1"), Keyed(C, b"1"), at_ms=cluster.time.now_ms()))
        await log.append(entry(Keyed(A, None), at_ms=cluster.time.now_ms()))

    async def look(self, cluster: AgingCluster) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in await read_anew(cluster)]

    async def more(self, cluster: AgingCluster, key: bytes, hours: float) -> tuple[int, int]:
        """Later: one more record, and a compaction of all. What is left, and how many marks went."""
        cluster.time.leap(int(hours * 3_600_000))
        log = await (await cluster.node()).log()
        await log.append(entry(Keyed(key, b"more"), at_ms=cluster.time.now_ms()))
        (report,) = await Compactor(cluster).tier_and_compact(
            min_cleanable_dirty_ratio="0", delete_retention_ms="86400000"
        )
        assert report.outcome == "compacted", report
        return report.records, report.tombstones

    async def test_they_stay_for_their_time_after_they_were_first_cleaned(self, aging: AgingCluster) -> None:
        await self.fill(aging)
        aging.time.leap(100 * 3_600_000)  # how old the record is does not matter
        assert await self.more(aging, B, 0) == (3, 0)
        assert (3, A, None) in await self.look(aging)
        assert await self.more(aging, B, 23.9) == (3, 0)
        assert (3, A, None) in await self.look(aging)
        assert await self.more(aging, B, 0.2) == (2, 1)
        assert [key for _, key, _ in await self.look(aging)] == [C, B]

    async def test_one_that_is_not_the_last_of_its_key_goes_at_once(self, aging: AgingCluster) -> None:
        await self.fill(aging)
        assert await self.more(aging, A, 0) == (3, 0)
        assert [(key, value) for _, key, value in await self.look(aging)] == [(B, b"1"), (C, b"1"), (A, b"more")]

    async def test_none_goes_before_what_it_deletes(self, aging: AgingCluster) -> None:
        """A state that is rebuilt never has the key again."""
        await self.fill(aging)
        for hours in (0.0, 10.0, 10.0, 10.0, 10.0):
            await self.more(aging, B, hours)
            assert A not in state_of(await read_anew(aging))


class TestLag:
    async def test_what_is_too_young_is_left_alone(self, aging: AgingCluster) -> None:
        log = await (await aging.node()).log()
        driver = Compactor(aging)
        for _ in range(2):
            for value in (b"1", b"2"):
                await log.append(entry(Keyed(A, value), at_ms=aging.time.now_ms()))
            await driver.tier()
            aging.time.leap(60_000)
        (report,) = await driver.compact(min_compaction_lag_ms="90000")
        assert (report.cleaned_up_to, report.records) == (2, 1)
        assert [record.offset for record in await read_anew(aging)] == [1, 2, 3]
        (report,) = await driver.compact(min_compaction_lag_ms="90000")
        assert report.outcome == "idle"
        aging.time.leap(60_000)
        (report,) = await driver.compact(min_compaction_lag_ms="90000", min_cleanable_dirty_ratio="0.1")
        assert (report.cleaned_up_to, report.records) == (4, 1)

    async def test_little_that_is_dirty_waits_until_it_is_too_old(self, aging: AgingCluster) -> None:
        log = await (await aging.node()).log()
        driver = Compactor(aging)
        await overwrite(log, keys=50, times=1)
        await driver.tier_and_compact()
        await log.append(entry(Keyed(b"key 1", b"1"), at_ms=aging.time.now_ms()))
        for ratio, outcome in (("0.5", "idle"), ("0.001", "planned")):
            (report,) = await driver.tier_and_plan(min_cleanable_dirty_ratio=ratio)
            assert report.outcome == outcome
        aging.time.leap(61_000)
        (report,) = await driver.compact(max_compaction_lag_ms="120000")
        assert report.outcome == "idle"
        (report,) = await driver.compact(max_compaction_lag_ms="60000")
        assert (report.outcome, report.records) == ("compacted", 50)
