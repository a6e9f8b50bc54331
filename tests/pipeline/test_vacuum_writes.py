"""Vacuum and writes of applications: what an intent names is needed, from the moment that it is published."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import msgspec
import pytest

from catena.errors import Rejected
from catena.pipeline.references import References
from catena.testing.faults import Fail
from catena.virtual_log.intents import open_blobs
from tests.loglets.stores import WAYS
from tests.pipeline.drivers import Driver, Steps
from tests.pipeline.vacuums import SETTINGS, AgingCluster, aging_cluster, vacuum_by
from tests.source.writes import WritingDriver, content, values_of

MAX_STEPS = 500
HOUR_MS = 3_600_000


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgingCluster]:
    async with aging_cluster(request.param, tmp_path, request) as cluster:
        yield cluster


async def begin(cluster: AgingCluster, name: str, version: int = 0) -> None:
    """A write whose driver dies when one run of four is in its log."""
    driver = await WritingDriver.start(cluster)
    written = await driver.write(name, version, partitions=(0,))
    log = await driver.node.log("topic", 0)
    before = await log.tail()
    step = cluster.stores.commit_step
    driver.steps.at(step, Fail(Rejected("the driver dies here")), nth=3 if before else 2)
    with pytest.raises(Rejected):
        await driver.commit(version, written)
    assert await log.tail() == before + 3


async def finish(cluster: AgingCluster) -> None:
    driver = await WritingDriver.start(cluster)
    await driver.commit(0, await driver.write_nothing())


async def test_blobs_of_a_write_that_is_under_way_are_kept(cluster: AgingCluster) -> None:
    await begin(cluster, "first")
    loser = await WritingDriver.start(cluster)
    await loser.write("loser")
    assert len(await open_blobs(cluster.stores.meta)) == 4
    cluster.age()
    assert (await cluster.vacuum()).deleted.objects == 4
    await finish(cluster)
    assert await open_blobs(cluster.stores.meta) == set()
    cluster.age()
    assert (await cluster.vacuum()).deleted.objects == 0
    assert await content(cluster, 0) == values_of("first")


async def test_writes_are_read_before_partitions(cluster: AgingCluster) -> None:
    """In the other order, what is finished between the two would be seen by neither."""
    await begin(cluster, "first")
    driver = Driver(cluster)
    found: set[str] = set()

    async def take(keys: Collection[str]) -> None:
        found.update(keys)

    references = References(driver.site, take)
    await references.read_writes()
    await finish(cluster)
    await references.read(await driver.places(0))
    assert found == set(await cluster.objects())


async def test_a_vacuum_sleeps_at_every_step_while_a_write_is_finished(cluster: AgingCluster) -> None:
    expected: list[str] = []
    for at in range(1, MAX_STEPS):
        await begin(cluster, f"{at}", at)
        cluster.age()
        sleepy = Driver(cluster, Steps(at, sleeps=True))
        vacuuming = asyncio.ensure_future(vacuum_by(sleepy))
        sleeping = asyncio.ensure_future(sleepy.steps.asleep.wait())
        await asyncio.wait([vacuuming, sleeping], return_when=asyncio.FIRST_COMPLETED)
        is_over = not sleepy.steps.asleep.is_set()
        sleeping.cancel()
        await finish(cluster)
        sleepy.steps.wake.set()
        await vacuuming
        expected += values_of(f"{at}")
        assert await content(cluster, 0) == expected, f"step {at}: {sleepy.steps.names}"
        if is_over:
            assert at > 5
            return
    raise AssertionError("it takes more and more steps")


async def test_a_vacuum_with_a_shorter_grace_than_the_writers_own(cluster: AgingCluster) -> None:
    """The blobs are gone when the driver comes, and it hears of it before anything is in a log."""
    driver = await WritingDriver.start(cluster)
    written = await driver.write("first", partitions=(0,))
    cluster.time.leap(2 * HOUR_MS)
    short = msgspec.structs.replace(SETTINGS, grace_ms=HOUR_MS)
    assert (await cluster.vacuum(settings=short)).deleted.objects == len(written.blobs)
    with pytest.raises(Rejected, match="have to be committed within 900 s"):
        await driver.commit(0, written)
    assert await (await driver.node.log("topic", 0)).tail() == 0
