"""Whoever works while a vacuum sleeps, at any of its steps: nothing that is needed is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import pytest

from catena.errors import NeedsOperator
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Stall
from catena.types import Offset
from catena.virtual_log.log import VirtualLog
from tests.loglets.stores import WAYS
from tests.pipeline.drivers import SMALL, Driver, Steps, append
from tests.pipeline.vacuums import AgingCluster, aging_cluster, vacuum_by
from tests.virtual_log.cluster import read_all

T = TypeVar("T")

MERGING = msgspec.structs.replace(SMALL, segment_bytes=50_000, merge_segments=2)
TRIMMED = 5
STEPS_MIN = 15


class Story(NamedTuple):
    """A log with tiered records, a job on its way, and records that are not tiered; all of it is old."""

    cluster: AgingCluster
    log: VirtualLog
    stale: VirtualLog
    """On another node, which has read all and will not look at the chain by itself."""
    job: asyncio.Future[object]
    job_stall: Stall
    writer_stall: Stall
    """Without `transact` the last append is in the control record and in no index: its writer sleeps."""
    values: list[str]

    async def wake_others(self) -> None:
        self.job_stall.let_go()
        self.writer_stall.let_go()
        await self.job

    async def go_on(self) -> Offset:
        """What others do; the log's start afterwards."""
        self.values.extend(await append(self.log, *named("meanwhile", 3)))
        await self.wake_others()
        await Driver(self.cluster).tier()
        self.values.extend(await append(self.log, *named("later", 2)))
        await Driver(self.cluster, settings=MERGING).tier()
        self.values.extend(await append(self.log, *named("last", 2)))
        await self.log.trim(TRIMMED)
        self.cluster.age()
        return TRIMMED

    async def check(self, start: Offset, why: object) -> None:
        fresh = await (await self.cluster.node()).log()
        for log in (fresh, self.stale):
            assert await read_all(log, start) == self.values[start:], why


def named(name: str, count: int) -> list[str]:
    return [f"{name} {number} {'x' * 300}" for number in range(count)]


async def begin_story(cluster: AgingCluster) -> Story:
    node = await cluster.node()
    log = await node.log()
    values = await append(log, *named("tiered", 8))
    await Driver(cluster).tier()
    values += await append(log, *named("in a job", 6))
    driver = Driver(cluster)
    # The first one names the job in the chain, the second one is the commit.
    stall = driver.steps.at("put chain", Stall(), nth=2)
    job: asyncio.Future[object] = asyncio.ensure_future(driver.tier())
    await soon(stall.reached.wait())
    values += await append(log, *named("not tiered", 4))
    node = await cluster.node()
    writer_stall = Stall()
    values += await append(await node.log(), "written")
    if not cluster.stores.can_transact:
        node.faults.at("put index", writer_stall)
    values += await append(await node.log(), "written, and not indexed")
    if not cluster.stores.can_transact:
        await soon(writer_stall.reached.wait())
    stale = await (await cluster.node()).log()
    assert await read_all(stale) == values
    cluster.age()
    return Story(cluster, log, stale, job, stall, writer_stall, values)


async def either(reached: asyncio.Event, running: asyncio.Future[T]) -> None:
    """Wait for the event; there need not be one."""
    running.add_done_callback(lambda _: reached.set())
    await soon(reached.wait())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("applied", [False, True])
async def test_a_vacuum_sleeps_at_every_step(
    way: str, applied: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with aging_cluster(way, tmp_path, request) as cluster:
        story = await begin_story(cluster)
        driver = Driver(cluster)
        assert (await vacuum_by(driver)).deleted.objects > 0
        await story.go_on()
        steps = len(driver.steps.names)
    assert steps > STEPS_MIN
    for at in range(1, steps + 1):
        async with aging_cluster(way, tmp_path, request) as cluster:
            story = await begin_story(cluster)
            driver = Driver(cluster, Steps(at, sleeps=True, applied=applied))
            vacuuming = asyncio.ensure_future(vacuum_by(driver))
            await either(driver.steps.asleep, vacuuming)
            start = await story.go_on()
            driver.steps.wake.set()
            try:
                await vacuuming
            except NeedsOperator:
                assert driver.steps.names[at - 1] in ("incarnation put", "incarnation head"), "a day passed just here"
            await story.check(start, (at, driver.steps.names))
            # The next one deletes all the same what this one could not know of.
            assert (await cluster.vacuum()).deleted.objects > 0
            await story.check(start, (at, driver.steps.names))


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgingCluster]:
    async with aging_cluster(request.param, tmp_path, request) as cluster:
        yield cluster


@pytest.mark.parametrize("step", ["get control", "scan index", "get chain", "manifest get", "put incarnation"])
@pytest.mark.parametrize("applied", [False, True])
async def test_only_the_pending_append_is_replaced_meanwhile(cluster: AgingCluster, step: str, applied: bool) -> None:
    """No tiering comes to the aid of a blob that was seen in neither place."""
    story = await begin_story(cluster)
    driver = Driver(cluster)
    await append(await (await cluster.node()).log(1), "another partition")
    stall = driver.steps.at(step, Stall(applied))
    vacuuming = asyncio.ensure_future(vacuum_by(driver))
    await either(stall.reached, vacuuming)
    story.values.extend(await append(story.log, *named("meanwhile", 3)))
    stall.let_go()
    await vacuuming
    await story.check(0, step)
    await story.wake_others()
    await story.check(0, step)


async def test_racing_vacuums(cluster: AgingCluster) -> None:
    story = await begin_story(cluster)
    start = await story.go_on()
    reports = await asyncio.gather(*(cluster.vacuum() for _ in range(4)))
    assert all(report.failed == 0 for report in reports)
    await story.check(start, "raced")
    assert (await cluster.vacuum()).orphans == {}


async def test_a_manifest_that_another_vacuum_has_deleted_is_read_by_the_chain_again(cluster: AgingCluster) -> None:
    story = await begin_story(cluster)
    driver = Driver(cluster)
    stall = driver.steps.at("manifest get", Stall())
    vacuuming = asyncio.ensure_future(vacuum_by(driver))
    await soon(stall.reached.wait())
    start = await story.go_on()
    assert "manifest" in (await cluster.vacuum()).orphans
    stall.let_go()
    await vacuuming
    await story.check(start, "read again")


async def test_a_reader_with_an_old_chain_finds_its_records_where_they_are_now(cluster: AgingCluster) -> None:
    log = await (await cluster.node()).log()
    values = await append(log, *named("old", 12))
    nodes = [await cluster.node() for _ in range(2)]
    before_tiering = await nodes[0].log()
    await before_tiering.refresh()
    await Driver(cluster).tier()
    before_merging = await nodes[1].log()
    await before_merging.refresh()
    assert (await before_merging.chain()).tiered is not None
    await Driver(cluster, settings=MERGING).tier()
    cluster.age()
    kinds = (await cluster.vacuum()).orphans.keys()
    assert kinds == {"wal", "segment", "manifest"}
    for reader in (before_tiering, before_merging):
        assert await read_all(reader) == values


async def test_readers_and_writers_that_hammer_the_log_see_every_offset_once(cluster: AgingCluster) -> None:
    log = await (await cluster.node()).log()
    values = await append(log, *named("first", 10))
    readers = [await (await cluster.node()).log() for _ in range(2)]
    ended, turn = False, asyncio.Lock()

    async def read() -> int:
        rounds = 0
        while not ended or rounds == 0:
            for reader in readers:
                known = len(values)
                found = await read_all(reader)
                assert found[:known] == values[:known]
            await asyncio.sleep(0)  # a store in memory never does
            rounds += 1
        return rounds

    async def write() -> None:
        number = 0
        while not ended:
            value = f"more {number} {'x' * 100}"
            async with turn:
                await append(log, value)
                values.append(value)
            number += 1
            await asyncio.sleep(0)

    working = [asyncio.ensure_future(read()), asyncio.ensure_future(write())]
    deleted = 0
    for number in range(12):
        await Driver(cluster, settings=MERGING if number % 3 else SMALL).tier()
        async with turn:  # no writer is about to commit for so long
            cluster.age()
        deleted += (await cluster.vacuum()).deleted.objects
    ended = True
    await asyncio.gather(*working)
    assert deleted > 20
    assert await cluster.content() == values
