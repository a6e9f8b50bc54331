"""Passes go on, whatever fails in between, and tell what they have done and what is left."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from catena.errors import RetryLater, StoreUnavailable
from catena.pipeline import tier_pass
from catena.pipeline.passes import Passes
from catena.pipeline.set_aside import FAILURES
from catena.pipeline.settings import TierSettings
from catena.pipeline.site import Place
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Fail, Stall
from tests.pipeline.drivers import SMALL, Driver, Steps, append, is_clean
from tests.pipeline.mortal_work import MortalWork
from tests.virtual_log.cluster import Cluster, read_all

NEVER = msgspec.structs.replace(SMALL, min_bytes=1 << 40)


def passes_of(driver: Driver, *partitions: int, settings: TierSettings = SMALL) -> Passes:
    async def find_places() -> list[Place]:
        return await driver.places(*partitions)

    return Passes(driver.site, driver.work, settings, find_places)


async def test_what_comes_in_is_tiered_pass_after_pass(cluster: Cluster) -> None:
    node = await cluster.node()
    passes = passes_of(Driver(cluster), 0, 1)
    for number in range(3):
        await append(await node.log(0), f"{number}")
        assert (await passes.run()).outcome == "good"
    log = await node.log(0)
    assert (await log.refresh()).boundary == 3
    assert await read_all(log) == ["0", "1", "2"]
    assert (passes.counts.partitions, passes.counts.candidates, passes.counts.runs) == (2, 1, 3)
    assert passes.counts.outcomes == {"tiered": 3}


async def test_an_idle_pass_reads_no_manifest_again(cluster: Cluster) -> None:
    log = await (await cluster.node()).log()
    await append(log, *(letter * 2500 for letter in "abc"))  # a segment each
    driver = Driver(cluster)
    passes = passes_of(driver, 0)
    await passes.run()
    await passes.run()

    async def gets() -> int:
        before = driver.steps.names.count("manifest get")
        await passes.run()
        return driver.steps.names.count("manifest get") - before

    assert await gets() == 0
    # What changes is seen: more records, and a start that has moved.
    await append(log, "g")
    assert await gets() > 0
    assert (await log.refresh()).boundary == 4
    await passes.run()
    await log.trim(2)
    assert await gets() > 0
    assert passes.counts.dropped == 2
    await passes.run()
    assert await gets() == 0


async def test_who_keeps_failing_is_set_aside_and_the_rest_goes_on(cluster: Cluster) -> None:
    node = await cluster.node()
    for number in (0, 1):
        await append(await node.log(number), "x")
    (lost,) = await cluster.stores.index((await node.log(1)).tp)
    await cluster.stores.objects.delete([lost.data_key])
    passes = passes_of(Driver(cluster), 0, 1)
    for _ in range(FAILURES + 2):
        ran = await passes.run()
        assert ran.outcome == "partly"
        assert lost.data_key in ran.error
    assert passes.counts.outcomes == {"failed": FAILURES, "tiered": 1}
    assert passes.counts.partitions == 1
    ((tp, failing),) = passes.set_aside.all.items()
    assert (tp.partition, failing.failures) == (1, FAILURES)
    assert lost.data_key in failing.error
    assert passes.lag.records == 1, "that it is set aside is no reason to forget it"


async def test_a_pass_that_can_not_be_done_is_no_harm_to_the_next(cluster: Cluster) -> None:
    node = await cluster.node()
    await append(await node.log(0), "x")
    driver = Driver(cluster)
    away = [StoreUnavailable("away")]

    async def find_places() -> list[Place]:
        if away:
            raise away.pop()
        return await driver.places(0)

    passes = Passes(driver.site, driver.work, SMALL, find_places)
    with pytest.raises(StoreUnavailable):
        await passes.run()
    assert [report.outcome for report in await passes.pass_once()] == ["tiered"]


async def test_what_was_done_before_a_pass_broke_off_counts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_pass, "GROUP", 1)
    node = await cluster.node()
    for number in (0, 1):
        await append(await node.log(number), "x")
    driver = Driver(cluster)
    passes = Passes(driver.site, MortalWork(driver.work, runs=1), SMALL, lambda: driver.places(0, 1))
    with pytest.raises(RetryLater):
        await passes.run()
    assert passes.counts.outcomes == {"tiered": 1}
    after = passes_of(driver, 0, 1)
    assert (await after.run()).outcome == "good"
    assert (after.counts.outcomes, after.counts.recoveries) == ({"tiered": 1}, {"abandoned": 1})


async def test_told_to_stop_it_finishes_what_it_has_begun(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_pass, "GROUP", 1)
    node = await cluster.node()
    for number in (0, 1):
        await append(await node.log(number), "x")
    driver = Driver(cluster)
    stall = driver.steps.at("manifest put", Stall())
    passes = passes_of(driver, 0, 1)
    ending = False
    running = asyncio.ensure_future(passes.run(lambda: ending))
    await soon(stall.reached.wait())
    ending = True
    stall.let_go()
    await soon(running)
    assert running.result().outcome == "stopped"
    assert passes.counts.outcomes == {"tiered": 1}
    for number in (0, 1):
        tp = (await node.log(number)).tp
        await is_clean(cluster, tp, (await (await node.log(number)).refresh()).boundary)


async def test_drivers_share_the_work(cluster: Cluster) -> None:
    node = await cluster.node()
    for number in range(10):
        await append(await node.log(number), "x")
    drivers = [passes_of(Driver(cluster), *range(10)) for _ in range(3)]
    await asyncio.gather(*(passes.pass_once() for passes in drivers))
    assert sum(passes.counts.outcomes.get("tiered", 0) for passes in drivers) >= 1
    for passes in drivers:
        await passes.pass_once()
    for number in range(10):
        assert await read_all(await node.log(number)) == ["x"]
        assert (await (await node.log(number)).refresh()).boundary == 1


class TestLag:
    async def test_what_waits_is_told_until_it_is_tiered(self, cluster: Cluster) -> None:
        node = await cluster.node()
        await append(await node.log(0), "a" * 100, "b" * 100, "c" * 100)
        await append(await node.log(1), "x")
        waiting, driver = passes_of(Driver(cluster), 0, 1, 2, settings=NEVER), Driver(cluster)
        await waiting.run()
        lag = waiting.lag
        assert (lag.partitions, lag.records, lag.records_max) == (2, 4, 3)
        assert lag.bytes > lag.bytes_max > 300
        assert 0 <= lag.seconds_max < 60
        tiering = passes_of(driver, 0, 1, 2)
        await tiering.run()
        assert tiering.lag.records == 0
        await waiting.run()
        assert waiting.lag.partitions == 0

    async def test_what_could_not_be_tiered_waits_on(self, cluster: Cluster) -> None:
        node = await cluster.node()
        await append(await node.log(0), "x")
        driver = Driver(cluster)
        driver.steps.at("manifest put", Fail(StoreUnavailable("away")))
        passes = passes_of(driver, 0)
        await passes.run()
        assert passes.counts.outcomes == {"failed": 1}
        assert passes.lag.records == 1

    async def test_it_costs_no_request(self, cluster: Cluster) -> None:
        await append(await (await cluster.node()).log(0), "x")
        watched, driver = Driver(cluster), Driver(cluster, settings=NEVER)
        await passes_of(watched, 0, settings=NEVER).run()
        await driver.tier(0, force_up_to=None)
        assert watched.steps.names == driver.steps.names

    async def test_a_job_that_was_left_behind_is_pending_until_it_is_recovered(self, cluster: Cluster) -> None:
        node = await cluster.node()
        await append(await node.log(0), "x")
        steps = Steps()
        await Driver(cluster, steps).tier(0)
        at = 1 + next(number for number, name in enumerate(steps.names) if "manifest put" in name)
        await append(await node.log(0), "y")
        dying = passes_of(Driver(cluster, Steps(at)), 0)
        assert (await dying.run()).outcome == "partly"
        driver = Driver(cluster)
        driver.steps.at("get compaction", Fail(StoreUnavailable("away")), nth=2)
        passes = passes_of(driver, 0)
        await passes.run()
        none = {"WRITING_COMPACTED_INDEX": 0, "UPDATING_CURSOR": 0, "DELETING_OLD": 0}
        assert passes.pending == {**none, "WRITING_COMPACTED_INDEX": 1}
        await passes.run()
        assert passes.pending == none
        assert passes.counts.recoveries == {"abandoned": 1}


async def test_stages_are_timed(cluster: Cluster) -> None:
    node = await cluster.node()
    for number in (0, 1):
        await append(await node.log(number), "x")
    passes = passes_of(Driver(cluster), 0, 1, 2)
    await passes.run()
    counts = {stage: time.count for stage, time in passes.stages.times.items()}
    assert counts == {"plan": 5, "recover": 0, "begin": 2, "tasks": 1, "commit": 2}
    assert all(time.seconds > 0 for time in passes.stages.times.values() if time.count)
