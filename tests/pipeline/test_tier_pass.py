"""Passes over many partitions: wherever a driver dies or sleeps, and whoever else works on them, no offset is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest

from catena.errors import OutcomeUnknown, StaleView, StoreUnavailable
from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.records import IndexEntry
from catena.meta import keys
from catena.pipeline import tier, tier_pass
from catena.pipeline.tasks.segments import SegmentPlan, SegmentsPlan, SegmentsResult, SegmentWritten
from catena.pipeline.tier_pass import Progress, TierPass, group_by_size, in_turns
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Fail, Stall
from catena.types import TopicId
from catena.virtual_log import chain as chains
from catena.virtual_log.log import VirtualLog
from tests.pipeline.drivers import EVERYTHING, SMALL, Driver, Steps, append, append_numbers, is_clean, shape
from tests.virtual_log.cluster import Cluster, read_all


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

    async def test_a_trim_to_just_where_a_job_ends_leaves_an_empty_link_and_the_next_pass_goes_on(
        self, cluster: Cluster
    ) -> None:
        await append_numbers(cluster, 5)
        log = await (await cluster.node()).log()
        driver = Driver(cluster)
        stall = driver.steps.at("manifest put", Stall())
        tiering = asyncio.ensure_future(driver.tier())
        await soon(stall.reached.wait())
        await log.trim(5)
        stall.let_go()
        await tiering
        (report,) = await Driver(cluster).tier()
        assert report.outcome in ("tiered", "idle")
        await append(log, "more")
        (report,) = await Driver(cluster).tier()
        assert (report.outcome, report.boundary) == ("tiered", 6)
        assert await cluster.content(5) == ["more"]

    async def test_a_job_whose_place_was_taken_before_it_knew_that_it_had_begun(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 5)
        driver, other = Driver(cluster), Driver(cluster)
        (place,) = await driver.places(0)
        plan = await tier.make_plan(driver.site, place, SMALL, EVERYTHING)
        assert plan is not None
        late = driver.steps.at("put chain", Stall(applied=True))
        beginning = asyncio.ensure_future(tier.begin(driver.site, plan))
        await soon(late.reached.wait())
        await other.site.chains.change(*place, lambda chain: chains.begin_tiering(chain, "another"))
        driver.steps.at("put chain", Fail(OutcomeUnknown("lost")))
        late.let_go()
        begun = await beginning
        assert begun.job != "another"
        with pytest.raises(StaleView):
            await tier.finish(driver.site, begun, await written(driver, begun))
        assert await cluster.content() == values


async def written(driver: Driver, job: tier.TierJob) -> list[SegmentInfo]:
    plan = msgspec.json.encode(SegmentsPlan(job.segments))
    (result,) = await driver.work.run("segments", [plan], lambda *_: None)
    assert isinstance(result, bytes)
    found = msgspec.json.decode(result, type=SegmentsResult).segments
    return [each.info for each in found if isinstance(each, SegmentWritten)]


class TestPass:
    async def test_it_tells_how_far_it_is(self, cluster: Cluster) -> None:
        node = await cluster.node()
        for number in range(3):
            await append(await node.log(number), "x" * 1000, "y" * 1000)
        told: list[Progress] = []
        driver = Driver(cluster)
        tiering = TierPass(driver.site, driver.work, SMALL, EVERYTHING, told.append)
        await tiering.run(await driver.places(0, 1, 2, 3))
        assert told[-1].partitions_done == told[-1].partitions == 4
        assert told[-1].bytes_done == told[-1].bytes > 6000
        assert [each.bytes_done for each in told] == sorted(each.bytes_done for each in told)

    async def test_it_ends_between_groups_when_it_is_told_to(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tier_pass, "GROUP", 2)
        node = await cluster.node()
        for number in range(6):
            await append(await node.log(number), "x")
        driver = Driver(cluster)
        asked = iter([False, False, True])
        tiering = TierPass(driver.site, driver.work, SMALL, EVERYTHING, should_stop=lambda: next(asked))
        reports = await tiering.run(await driver.places(*range(6)))
        assert [(each.partition, each.outcome) for each in reports] == [(number, "tiered") for number in range(4)]
        for number in range(4):
            await is_clean(cluster, (await node.log(number)).tp, 1)

    async def test_a_group_ends_where_it_has_many_runs(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tier_pass, "GROUP_RUNS", 5)
        monkeypatch.setattr(tier_pass, "AT_ONCE", 1)
        node = await cluster.node()
        for number in range(5):
            await append(await node.log(number), *"abc")
        driver = Driver(cluster)
        asked = iter([False, True])
        tiering = TierPass(driver.site, driver.work, SMALL, EVERYTHING, should_stop=lambda: next(asked))
        reports = await tiering.run(await driver.places(*range(5)))
        assert [(each.partition, each.outcome) for each in reports] == [(0, "tiered"), (1, "tiered")]
        reports = await driver.tier(*range(5))
        assert [each.partition for each in reports if each.outcome == "tiered"] == [2, 3, 4]

    async def test_each_partition_gets_its_own_segments(self, cluster: Cluster) -> None:
        """Several of each, which tasks make in turns."""
        node = await cluster.node()
        logs = [await node.log(number) for number in range(3)]
        values = [[f"{number} {count} {'x' * 300}" for count in range(12 + 6 * number)] for number in range(3)]
        for log, each in zip(logs, values, strict=True):
            await append(log, *each)
        reports = await Driver(cluster).tier(0, 1, 2)
        assert [(each.partition, each.outcome) for each in reports] == [(number, "tiered") for number in range(3)]
        for log, each in zip(logs, values, strict=True):
            assert (await log.refresh()).boundary == len(each)
            assert await read_all(log) == each

    def test_the_first_segments_of_all_partitions_come_before_the_second_ones(self) -> None:
        def plan(partition: int) -> SegmentPlan:
            return SegmentPlan("c", "t", TopicId("1" * 32), partition, "j", 0, 1)

        assert in_turns([plan(number) for number in (0, 0, 0, 1, 2, 2)]) == [0, 3, 4, 1, 5, 2]
        assert in_turns([]) == []

    def test_tasks_have_about_so_many_bytes(self) -> None:
        def plan(size: int) -> SegmentPlan:
            return SegmentPlan("c", "t", TopicId("1" * 32), 0, "j", 0, 1, (IndexEntry(0, 1, "b", size),))

        groups = list(group_by_size([plan(size) for size in (5, 5, 3, 20, 1, 1)], 10))
        assert [[each.size for each in group] for group in groups] == [[5, 5], [3], [20], [1, 1]]
        assert list(group_by_size([], 10)) == []
