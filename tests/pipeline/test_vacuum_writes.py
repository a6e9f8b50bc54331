"""Vacuum and writes of applications: what an intent names is needed, from the moment that it is published."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import msgspec
import pytest

from catena.errors import NeedsOperator, Rejected
from catena.meta import keys
from catena.pipeline.references import References
from catena.pipeline.vacuum import vacuum
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Fail, Stall
from catena.virtual_log import intents
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

    async def take(named: Collection[str]) -> None:
        found.update(named)

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


class TestBodies:
    """What a large write consists of is in records of its own, written before anybody sees that it is begun."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(intents, "MAX_INLINE_BYTES", 0)
        monkeypatch.setattr(intents, "PART_BYTES", 500)

    async def test_of_a_driver_that_died_before_it_was_begun(self, cluster: AgingCluster) -> None:
        driver = await WritingDriver.start(cluster)
        written = await driver.write("dies", partitions=(0,))
        driver.steps.at("put head", Fail(Rejected("the driver dies here")))
        with pytest.raises(Rejected):
            await driver.commit(0, written)
        parts = await bodies(cluster)
        assert len(parts) > 1
        assert (await cluster.vacuum()).forgotten_writes == 0
        cluster.age()
        assert (await cluster.vacuum(dry_run=True)).forgotten_writes == 1
        assert await bodies(cluster) == parts
        assert (await cluster.vacuum()).forgotten_writes == 1
        assert await bodies(cluster) == []
        other = await WritingDriver.start(cluster)
        await other.commit(0, await other.write("other", partitions=(0,)))
        assert await content(cluster, 0) == values_of("other")

    async def test_a_clock_that_is_ahead_is_no_reason_to_forget_one(self, cluster: AgingCluster) -> None:
        """Its writer may publish it between the look at its head and its end."""
        driver, ahead, vacuuming = await WritingDriver.start(cluster), type(cluster.time)(), Driver(cluster)
        written = await driver.write("first", partitions=(0,))
        stall = driver.steps.at("put head", Stall())
        committing = asyncio.ensure_future(driver.commit(0, written))
        await soon(stall.reached.wait())
        before = await bodies(cluster)
        ahead.leap(2 * SETTINGS.grace_ms)
        with pytest.raises(NeedsOperator, match="ahead of the object store's"):
            await vacuum(vacuuming.site._replace(clock=ahead), vacuuming.work, SETTINGS)
        assert await bodies(cluster) == before != []
        stall.let_go()
        await committing
        assert await content(cluster, 0) == values_of("first")

    async def test_of_a_write_that_is_under_way_stay(self, cluster: AgingCluster) -> None:
        await begin(cluster, "first")
        cluster.age()
        assert (await cluster.vacuum()).forgotten_writes == 0
        await finish(cluster)
        assert await content(cluster, 0) == values_of("first")
        assert await bodies(cluster) == []

    async def test_a_writer_sleeps_at_every_step_while_vacuum_runs(self, cluster: AgingCluster) -> None:
        """It goes on, or is told that it is too late, and its next attempt writes: once, whoever it was."""
        expected: list[str] = []
        for at in range(1, MAX_STEPS):
            slow = await WritingDriver.start(cluster)
            written = await slow.write(f"slow {at}", at, partitions=(0,), tasks=1)
            slow.steps.count(at, applied=at % 2 == 0)
            committing = asyncio.ensure_future(slow.commit(at, written))
            sleeping = asyncio.ensure_future(slow.steps.stopped.wait())
            await asyncio.wait([committing, sleeping], return_when=asyncio.FIRST_COMPLETED)
            sleeping.cancel()
            is_over = not slow.steps.stopped.is_set()
            cluster.age()
            await cluster.vacuum()
            slow.steps.go_on.set()
            (error,) = await asyncio.gather(committing, return_exceptions=True)
            assert error is None or isinstance(error, Rejected), f"step {at} of {slow.steps.names}: {error}"
            second = await WritingDriver.start(cluster)
            await second.commit(at, await second.write(f"second {at}", at, partitions=(0,), tasks=1))
            found = (await content(cluster, 0))[len(expected) :]
            attempts = [values_of(f"{name} {at}", tasks=1) for name in ("slow", "second")]
            assert found in attempts, f"step {at} of {slow.steps.names}"
            assert error is not None or found == attempts[0], (
                f"step {at} of {slow.steps.names}: it was told that it is done"
            )
            expected += found
            assert await bodies(cluster) == []
            if is_over:
                assert at > 8
                return
        raise AssertionError("it takes more and more steps")


async def bodies(cluster: AgingCluster) -> list[str]:
    records = await cluster.stores.meta.scan(keys.WRITES, keys.after(keys.WRITES))
    return [record.key for record in records if keys.parse_write_body_part(record.key) is not None]
