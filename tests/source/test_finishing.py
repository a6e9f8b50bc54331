"""Whatever a driver has begun is finished by the pipeline, once and whole, and long after that it is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.errors import Corrupt, LogSealed, Rejected
from catena.meta import keys
from catena.pipeline.settings import WritesSettings
from catena.runtime import SystemEntropy
from catena.source.adopting import GRACES
from catena.source.finishing import WritesReport, finish_writes
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Fail, Stall
from catena.virtual_log.intents import heads
from tests.loglets.stores import WAYS, Stores
from tests.source.writes import APP, HOUR_S, MAX_AGE_MS, WritingDriver, content, leap, values_of
from tests.virtual_log.cluster import Cluster

MAX_STEPS = 49
DAY_S = 24 * HOUR_S
SETTINGS = WritesSettings()
AFTER_S = SETTINGS.finish_after_ms // 1000 + 1


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Stores(request.param, tmp_path, request) as stores:
        cluster = Cluster(stores)
        await cluster.node()
        yield cluster


async def finish(cluster: Cluster) -> WritesReport:
    driver = await WritingDriver.start(cluster)
    return await finish_writes(driver.node, SystemEntropy(), SETTINGS, MAX_AGE_MS * GRACES)


async def stopped_at(
    cluster: Cluster, at: int, applied: bool, once: bool
) -> tuple[WritingDriver, asyncio.Future[None]]:
    """A driver that commits, and has stopped at this step, or has come to its end."""
    driver = await WritingDriver.start(cluster)
    written = await driver.write("first", partitions=pair(at), tasks=1, app=f"app {at}")
    driver.steps.count(at, applied)
    committing = asyncio.ensure_future(driver.commit(0, written, f"app {at}", forget=once))
    stopping = asyncio.ensure_future(driver.steps.stopped.wait())
    await asyncio.wait([committing, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return driver, committing


def pair(at: int) -> tuple[int, int]:
    """Partitions that no other step writes to."""
    return 2 * at, 2 * at + 1


@pytest.mark.parametrize("wakes", [False, True])
@pytest.mark.parametrize(("applied", "once"), [(False, True), (True, True), (True, False)])
async def test_a_driver_dies_or_sleeps_at_each_step(cluster: Cluster, applied: bool, once: bool, wakes: bool) -> None:
    finished = 0
    for at in range(1, MAX_STEPS):
        mortal, committing = await stopped_at(cluster, at, applied, once)
        if committing.done():
            mortal.steps.go_on.set()  # what it does behind its answer
            assert (at > 10, finished > 5) == (True, True)
            return
        if not wakes:
            committing.cancel()
        leap(cluster, AFTER_S)
        report = await finish(cluster)
        assert report.failures == {}
        assert [app async for app, head in heads(cluster.stores.meta) if head.open is not None] == []
        found = [await content(cluster, number) for number in pair(at)]
        whole = [values_of("first", 1)] * 2
        assert found in ([[], []], whole), f"step {at}: {mortal.steps.names}"
        assert found == whole or not report.finished
        finished += report.finished
        mortal.steps.go_on.set()  # what it had under way arrives now
        await asyncio.gather(committing, return_exceptions=True)
        await mortal.node.drain()
        assert (await finish(cluster)).finished == 0
        after = [await content(cluster, number) for number in pair(at)]
        assert after in (found, whole), f"step {at}: {mortal.steps.names}"
        assert after == whole or not wakes
    raise AssertionError("it takes more and more steps")


async def test_who_is_still_at_it_is_left_alone(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    stall = driver.steps.at(cluster.stores.commit_step, Stall(), nth=3)
    committing = asyncio.ensure_future(driver.commit(0, await driver.write("first")))
    await soon(stall.reached.wait())
    leap(cluster, AFTER_S - 2)
    assert await finish(cluster) == WritesReport(applications=1, open=1)
    leap(cluster, 2)
    # It is not dead, and both append the same.
    finishing = asyncio.ensure_future(finish(cluster))
    stall.let_go()
    await committing
    assert (await finishing).failures == {}
    assert [await content(cluster, number) for number in range(2)] == [values_of("first")] * 2


async def test_one_that_nobody_confirmed_in_time_is_abandoned(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    stall = driver.steps.at("put head", Stall(applied=True))
    committing = asyncio.ensure_future(driver.commit(0, await driver.write("first"), forget=True))
    await soon(stall.reached.wait())
    committing.cancel()
    leap(cluster, MAX_AGE_MS / 1000 + 1)
    assert await finish(cluster) == WritesReport(applications=1, abandoned=1, forgotten=1)
    assert await content(cluster, 0) == []
    assert await cluster.stores.meta.scan(keys.WRITES, keys.after(keys.WRITES)) == []


async def test_one_that_can_not_be_finished_stops_no_other(cluster: Cluster) -> None:
    for app, partition in (("a", 0), ("b", 1)):
        driver = await WritingDriver.start(cluster)
        driver.steps.at(cluster.stores.commit_step, Fail(Rejected("the driver dies here")))
        with pytest.raises(Rejected):
            await driver.commit(0, await driver.write(app, partitions=(partition,), app=app), app)
    await (await (await cluster.node()).log(0)).seal()
    leap(cluster, AFTER_S)
    report = await finish(cluster)
    assert (report.applications, report.finished, list(report.failures)) == (2, 1, ["a"])
    assert isinstance(report.failures["a"], LogSealed)
    assert await content(cluster, 1) == values_of("b")


@pytest.mark.parametrize("record", [b'{"done":', b'{"done": "7 of a later release"}'], ids=["damaged", "newer"])
async def test_a_head_that_can_not_be_read_stops_no_other(cluster: Cluster, record: bytes) -> None:
    for app, partition in (("a", 0), ("c", 1)):
        driver = await WritingDriver.start(cluster)
        driver.steps.at(cluster.stores.commit_step, Fail(Rejected("the driver dies here")))
        with pytest.raises(Rejected):
            await driver.commit(0, await driver.write(app, partitions=(partition,), app=app), app)
    await cluster.stores.meta.put(keys.write_head("b"), record)
    leap(cluster, AFTER_S)
    report = await finish(cluster)
    assert (report.applications, report.finished, list(report.failures)) == (3, 2, ["b"])
    assert isinstance(report.failures["b"], Corrupt)
    assert keys.write_head("b") in str(report.failures["b"])
    assert [await content(cluster, number) for number in range(2)] == [values_of("a"), values_of("c")]
    found = await cluster.stores.meta.get(keys.write_head("b"))
    assert found is not None
    assert found.value == record, "what nobody understands is left alone"


async def test_what_is_long_over_is_forgotten(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    await driver.commit(7, await driver.write("first", 7))
    leap(cluster, SETTINGS.keep_ms / 1000 - DAY_S)
    assert await finish(cluster) == WritesReport(applications=1)
    await driver.commit(7, await driver.write("again", 7))
    assert await content(cluster, 0) == values_of("first")
    leap(cluster, 2 * DAY_S)
    assert await finish(cluster) == WritesReport(applications=1, forgotten=1)
    assert await finish(cluster) == WritesReport()
    await driver.commit(8, await driver.write("next", 8))
    assert await content(cluster, 0) == values_of("first") + values_of("next")


async def test_told_to_stop(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    await driver.commit(0, await driver.write("first"), APP)
    assert await finish_writes(driver.node, SystemEntropy(), SETTINGS, 1, lambda: True) == WritesReport()
