"""Tiering moves offsets and loses none: what becomes of the chain, the segments and the index."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from catena.errors import StaleView
from catena.pipeline import tier
from catena.pipeline.tier_pass import plan_all
from catena.testing.contracts.loglet import Stamp, make_entry, soon
from catena.testing.faults import Stall
from tests.pipeline.drivers import EVERYTHING, SMALL, Driver, append, append_numbers, is_clean, shape
from tests.virtual_log.cluster import Cluster, read_all


class TestTiering:
    async def test_a_log_that_never_sealed_anything_tiers(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 20)
        reader = await (await cluster.node()).log()
        assert await read_all(reader) == values
        (report,) = await Driver(cluster).tier()
        assert (report.outcome, report.boundary, report.runs) == ("tiered", 20, 20)
        chain = await reader.refresh()
        assert shape(chain) == [("tiered", 0, 20), ("diskless", 20, None)]
        assert chain.epoch_at(3) == 1
        assert await read_all(reader) == await cluster.content() == values
        await is_clean(cluster, reader.tp, 20)
        values += await append_numbers(cluster, 3, 20)
        assert await cluster.content() == values

    async def test_pass_after_pass_the_tiered_link_grows(self, cluster: Cluster) -> None:
        values: list[str] = []
        for number in range(5):
            values += await append_numbers(cluster, 7, 7 * number)
            (report,) = await Driver(cluster).tier()
            assert (report.outcome, report.boundary) == ("tiered", 7 * number + 7)
        log = await (await cluster.node()).log()
        assert shape(await log.chain()) == [("tiered", 0, 35), ("diskless", 35, None)]
        assert await cluster.content() == values

    async def test_an_idle_pass_changes_nothing(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 3)
        await Driver(cluster).tier()
        driver = Driver(cluster)
        (report,) = await driver.tier()
        assert report.outcome == "idle"
        assert not [step for step in driver.steps.names if "put" in step or "delete" in step]

    async def test_a_plan_tells_what_would_be_done_and_does_nothing(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 10)
        driver = Driver(cluster)
        (report,) = await plan_all(driver.site, await driver.places(0), SMALL, EVERYTHING)
        assert (report.outcome, report.boundary, report.runs) == ("planned", 10, 10)
        assert not [step for step in driver.steps.names if "put" in step or "delete" in step]

    async def test_what_is_not_old_enough_stays_unless_it_is_forced(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 10)
        settings = msgspec.structs.replace(SMALL, min_age_ms=1_000_000)
        (report,) = await Driver(cluster, settings=settings).tier(force_up_to=None)
        assert report.outcome == "idle"
        (report,) = await Driver(cluster, settings=settings).tier(force_up_to=4)
        assert (report.outcome, report.boundary) == ("tiered", 4)

    async def test_an_append_that_is_only_pending_tiers_too(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 1)
        await Driver(cluster).tier()
        assert await cluster.content() == values
        log = await (await cluster.node()).log()
        assert (await log.chain()).boundary == 1

    async def test_small_segments_are_merged(self, cluster: Cluster) -> None:
        values: list[str] = []
        settings = msgspec.structs.replace(SMALL, segment_bytes=20_000)
        for number in range(4):
            values += await append_numbers(cluster, 1, number)
            await Driver(cluster, settings=settings).tier()
        driver = Driver(cluster, settings=settings)
        (report,) = await driver.tier()
        assert (report.outcome, report.merged, report.segments) == ("tiered", 4, 1)
        (place,) = await driver.places(0)
        manifest = await tier.load_manifest(driver.site, place.tp, (await driver.site.chains.load(*place)).chain)
        assert manifest is not None
        assert [(segment.base, segment.end) for segment in manifest.segments] == [(0, 4)]
        assert await cluster.content() == values

    async def test_segments_below_the_start_are_let_go(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 20)
        await Driver(cluster).tier()
        log = await (await cluster.node()).log()
        await log.trim(11)
        (report,) = await Driver(cluster).tier()
        assert report.dropped > 0
        chain = await log.refresh()
        assert 0 < chain.links[0].base <= chain.start == 11
        assert await cluster.content(11) == values[11:]

    async def test_a_run_that_a_trim_has_cut_is_tiered_whole(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await log.append(make_entry("a", "b", "c"))
        await log.append(make_entry("d"))
        await log.trim(2)
        (report,) = await Driver(cluster).tier()
        assert (report.outcome, report.boundary) == ("tiered", 4)
        assert shape(await log.refresh()) == [("tiered", 0, 4), ("diskless", 4, None)]
        (batch,) = await log.read(2, 1)
        assert (batch.offset, batch.end) == (0, 3)

    async def test_it_ends_where_a_link_of_another_kind_begins(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log = await node.log()
        await append(log, "a", "b")
        await log.reconfigure("memory")
        await append(log, "c")
        await log.reconfigure("diskless")
        await append(log, "d")
        (report,) = await Driver(cluster).tier()
        assert (report.outcome, report.boundary) == ("tiered", 2)
        chain = await log.refresh()
        assert shape(chain) == [("tiered", 0, 2), ("memory", 2, 3), ("diskless", 3, None)]
        assert await read_all(log) == ["a", "b", "c", "d"]
        (report,) = await Driver(cluster).tier()
        assert report.outcome == "idle"

    async def test_idempotent_producers_go_on(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        first, second = make_entry("a", stamp=Stamp(7, 0, 0)), make_entry("b", stamp=Stamp(7, 0, 1))
        await log.append(first)
        await Driver(cluster).tier()
        other = await (await cluster.node()).log()
        assert await other.append(first) == 0
        assert await other.append(second) == 1
        assert await cluster.content() == ["a", "b"]

    async def test_one_partition_that_fails_does_not_stop_the_others(self, cluster: Cluster) -> None:
        node = await cluster.node()
        for number in range(3):
            await append(await node.log(number), f"{number}")
        lost = (await cluster.stores.index((await node.log(1)).tp))[0]
        await cluster.stores.objects.delete([lost.data_key])
        reports = await Driver(cluster).tier(0, 1, 2)
        assert sorted((each.partition, each.outcome) for each in reports) == [
            (0, "tiered"),
            (1, "failed"),
            (2, "tiered"),
        ]
        (error,) = [each.error for each in reports if each.error]
        assert lost.data_key in error
        await is_clean(cluster, (await node.log(1)).tp, 0)

    async def test_a_deleted_topic_is_left_alone(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 3)
        driver = Driver(cluster)
        places = await driver.places(0)
        await (await cluster.node()).node.topics.delete("topic")
        (report,) = await driver.tier_pass().run(places)
        assert report.outcome == "idle"

    async def test_a_record_of_another_job_is_not_overwritten(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 3)
        driver = Driver(cluster)
        (place,) = await driver.places(0)
        plan = await tier.make_plan(driver.site, place, SMALL, EVERYTHING)
        assert plan is not None
        await tier.begin(driver.site, plan)
        with pytest.raises(StaleView):
            await tier.begin(driver.site, plan)

    async def test_a_search_by_time_that_tiering_overtakes_looks_again(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log = await node.log()
        for time in (10, 20, 30):
            await log.append(make_entry(f"{time}", timestamp_ms=time))
        for is_max, found in ((False, 1), (True, 2)):
            stall = node.faults.at("scan index", Stall())
            searching = asyncio.ensure_future(log.find_max_time() if is_max else log.find_time(20))
            await soon(stall.reached.wait())
            await Driver(cluster).tier()
            stall.let_go()
            place = await searching
            assert place is not None
            assert place.offset == found
            await log.append(make_entry("more", timestamp_ms=5))
