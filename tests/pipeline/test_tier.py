"""Tiering moves offsets and loses none, wherever a driver dies or sleeps, and whoever else works on the partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from catena.errors import StaleView, StoreUnavailable
from catena.meta import keys
from catena.pipeline import compactions, tier
from catena.pipeline.tier_pass import plan_all
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import Stamp, make_entry, soon
from catena.testing.faults import Stall
from catena.types import TopicPartition
from catena.virtual_log.chain import Chain
from catena.virtual_log.log import VirtualLog
from tests.loglets.stores import WAYS, Stores
from tests.pipeline.drivers import EVERYTHING, SMALL, Driver, Steps
from tests.virtual_log.cluster import Cluster, read_all


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Stores(request.param, tmp_path, request) as stores:
        stores.clock = SystemClock()  # sessions are kept alive all the time, and a quick clock would run away
        yield Cluster(stores)


def shape(chain: Chain) -> list[tuple[str, int, int | None]]:
    return [(link.kind, link.base, link.end) for link in chain.links]


async def append(log: VirtualLog, *values: str) -> list[str]:
    """Each in a run of its own."""
    for value in values:
        await log.append(make_entry(value))
    return list(values)


async def append_numbers(cluster: Cluster, count: int, start: int = 0) -> list[str]:
    log = await (await cluster.node()).log()
    return await append(log, *(f"{number} {'x' * 300}" for number in range(start, start + count)))


async def is_clean(cluster: Cluster, tp: TopicPartition, boundary: int) -> None:
    """No record, no claim and no index entry is left behind."""
    assert await cluster.stores.meta.get(keys.compaction(tp)) is None
    assert await cluster.stores.meta.get(keys.compactor_claim(tp)) is None
    assert all(end >= boundary for end in await cluster.index_ends(tp))


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


async def count_steps(cluster: Cluster) -> int:
    """How many steps a job on partition 99 takes, of the same work as on partition 0."""
    log = await (await cluster.node()).log(99)
    await append(log, *(f"{number} {'x' * 300}" for number in range(8)))
    driver = Driver(cluster)
    await driver.tier(99)
    return len(driver.steps.names)


@pytest.mark.parametrize("applied", [False, True])
class TestDeath:
    async def test_at_every_step_another_driver_goes_on(self, cluster: Cluster, applied: bool) -> None:
        steps = await count_steps(cluster)
        assert steps > 10
        for at in range(1, steps + 1):
            await self.dies_at(cluster, at, applied, partition=at % 98)

    async def dies_at(self, cluster: Cluster, at: int, applied: bool, partition: int) -> None:
        node = await cluster.node()
        log = await node.log(partition)
        values = await append(log, *(f"{number} {'x' * 300}" for number in range(8)))
        dying = Driver(cluster, Steps(at, applied=applied))
        with suppress(StoreUnavailable):
            await dying.tier(partition)
        assert await read_all(await (await cluster.node()).log(partition)) == values, dying.steps.names
        (report,) = await Driver(cluster).tier(partition)
        assert report.outcome in ("tiered", "idle"), (at, report, dying.steps.names)
        assert await read_all(await (await cluster.node()).log(partition)) == values
        chain = await log.refresh()
        assert chain.boundary == 8, (at, report, dying.steps.names)
        assert chain.tiering is None or report.outcome == "idle"
        await is_clean(cluster, log.tp, 8)


@pytest.mark.parametrize("applied", [False, True])
class TestSleep:
    async def test_who_wakes_up_after_others_have_gone_on_changes_nothing(
        self, cluster: Cluster, applied: bool
    ) -> None:
        steps = await count_steps(cluster)
        for at in range(1, steps + 1):
            await self.sleeps_at(cluster, at, applied, partition=at % 98)

    async def sleeps_at(self, cluster: Cluster, at: int, applied: bool, partition: int) -> None:
        node = await cluster.node()
        log = await node.log(partition)
        values = await append(log, *(f"{number} {'x' * 300}" for number in range(8)))
        sleeper = Driver(cluster, Steps(at, sleeps=True, applied=applied))
        sleeping = asyncio.ensure_future(sleeper.tier(partition))
        asleep = asyncio.ensure_future(sleeper.steps.asleep.wait())
        # Steps are not the same in number each time: what was pending may have been written down already.
        await soon(asyncio.wait([asleep, sleeping], return_when=asyncio.FIRST_COMPLETED))
        asleep.cancel()
        await cluster.stores.meta.delete(keys.compactor_claim(log.tp))  # its session has expired
        for number in range(2):
            await Driver(cluster).tier(partition)
            values += await append(log, f"more {number}")
        sleeper.steps.wake.set()
        (report,) = await sleeping
        assert report.outcome in ("tiered", "stale", "idle", "busy"), (at, report)
        assert await read_all(await (await cluster.node()).log(partition)) == values, (at, sleeper.steps.names)
        await Driver(cluster).tier(partition)
        assert await read_all(await (await cluster.node()).log(partition)) == values
        assert (await log.refresh()).boundary == len(values)
        await is_clean(cluster, log.tp, len(values))


class TestRaces:
    async def test_of_drivers_at_once_one_works(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 20)
        reports = await asyncio.gather(*(Driver(cluster).tier() for _ in range(4)))
        assert {report.outcome for (report,) in reports} <= {"tiered", "busy", "idle", "stale"}
        assert await cluster.content() == values
        assert "tiered" in {report.outcome for (report,) in reports}

    async def test_a_trim_meanwhile_counts(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 20)
        log = await (await cluster.node()).log()
        driver = Driver(cluster)
        stall = driver.steps.at("manifest put", Stall())
        tiering = asyncio.ensure_future(driver.tier())
        await soon(stall.reached.wait())
        await log.trim(5)
        stall.let_go()
        (report,) = await tiering
        assert report.outcome == "tiered"
        assert (await log.refresh()).start == 5
        assert await cluster.content(5) == values[5:]

    async def test_a_trim_beyond_what_is_tiered_makes_it_useless(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 20)
        log = await (await cluster.node()).log()
        driver = Driver(cluster, settings=msgspec.structs.replace(SMALL, min_age_ms=1_000_000))
        stall = driver.steps.at("manifest put", Stall())
        tiering = asyncio.ensure_future(driver.tier(force_up_to=10))
        await soon(stall.reached.wait())
        await log.trim(15)
        stall.let_go()
        (report,) = await tiering
        assert report.outcome == "stale"
        assert shape(await log.refresh()) == [("diskless", 0, None)]
        (report,) = await Driver(cluster).tier()
        assert (report.outcome, report.boundary) == ("tiered", 20)

    async def test_a_reconfigure_meanwhile_does_not_hold_it_up(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 10)
        log = await (await cluster.node()).log()
        driver = Driver(cluster)
        stall = driver.steps.at("manifest put", Stall())
        tiering = asyncio.ensure_future(driver.tier())
        await soon(stall.reached.wait())
        await log.reconfigure("memory")
        values += await append(log, "more")
        stall.let_go()
        (report,) = await tiering
        assert report.outcome == "tiered"
        assert shape(await log.refresh()) == [("tiered", 0, 10), ("memory", 10, None)]
        assert await read_all(log) == values

    async def test_a_topic_that_is_deleted_meanwhile_stays_deleted(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 10)
        driver = Driver(cluster)
        stall = driver.steps.at("manifest put", Stall())
        tiering = asyncio.ensure_future(driver.tier())
        await soon(stall.reached.wait())
        await (await cluster.node()).node.topics.delete("topic")
        stall.let_go()
        (report,) = await tiering
        assert report.outcome == "stale"

    async def test_readers_that_hammer_the_log_see_every_offset_once(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 30)
        nodes = [await (await cluster.node()).log() for _ in range(3)]
        ended = False

        async def hammer(log: VirtualLog) -> int:
            rounds = 0
            while not ended or rounds == 0:
                assert await read_all(log) == values
                await asyncio.sleep(0)  # a store in memory never does
                rounds += 1
            return rounds

        hammering = [asyncio.ensure_future(hammer(log)) for log in nodes]
        for up_to in (5, 9, 20, EVERYTHING):
            await Driver(cluster).tier(force_up_to=up_to)
        await Driver(cluster).tier()
        ended = True
        assert all(rounds > 0 for rounds in await asyncio.gather(*hammering))
        assert await cluster.content() == values


class TestFence:
    async def test_an_abandoned_job_cannot_finish(self, cluster: Cluster) -> None:
        """Were it to, the chain would name objects that vacuum may have collected."""
        values = await append_numbers(cluster, 10)
        driver = Driver(cluster)
        stall = driver.steps.at("segment put", Stall())
        tiering = asyncio.ensure_future(driver.tier())
        await soon(stall.reached.wait())
        (place,) = await driver.places(0)
        await cluster.stores.meta.delete(keys.compactor_claim(place.tp))
        assert await compactions.recover(Driver(cluster).site, place) == "abandoned"
        stall.let_go()
        (report,) = await tiering
        assert report.outcome == "stale"
        log = await (await cluster.node()).log()
        assert shape(await log.refresh()) == [("diskless", 0, None)]
        assert await cluster.content() == values

    async def test_a_record_of_another_job_is_not_overwritten(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 3)
        driver = Driver(cluster)
        (place,) = await driver.places(0)
        plan = await tier.make_plan(driver.site, place, SMALL, EVERYTHING)
        assert plan is not None
        await tier.begin(driver.site, plan)
        with pytest.raises(StaleView):
            await tier.begin(driver.site, plan)
