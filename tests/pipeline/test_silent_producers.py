"""Producers that have been silent for long are forgotten, and nobody is told anything else because of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.errors import NeedsOperator, OutOfOrderSequence
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT
from catena.pipeline.silent_producers import SILENT_MS, forget_silent
from catena.pipeline.vacuum import vacuum
from catena.testing.contracts.loglet import Stamp, make_entry, soon
from catena.testing.faults import Stall
from catena.types import ANY, TopicPartition
from tests.loglets.stores import WAYS
from tests.pipeline.drivers import Driver
from tests.pipeline.vacuums import SETTINGS, AgingCluster, aging_cluster


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgingCluster]:
    async with aging_cluster(request.param, tmp_path, request) as cluster:
        yield cluster


async def known(cluster: AgingCluster, tp: TopicPartition) -> list[int]:
    prefix = keys.producer_prefix(tp)
    return [int(record.key.rpartition("/")[2]) for record in await cluster.stores.meta.scan(prefix, keys.after(prefix))]


async def test_those_that_are_silent_for_two_days_go(cluster: AgingCluster) -> None:
    log = await (await cluster.node()).log()
    for producer in (1, 2):
        await log.append(make_entry("a", stamp=Stamp(producer, 0, 0)))
    await log.append(make_entry("plain"))
    cluster.time.leap(SILENT_MS - 60_000)
    await log.append(make_entry("b", stamp=Stamp(3, 0, 0)))
    await log.append(make_entry("plain"))
    assert (await cluster.vacuum()).forgotten_producers == 0
    cluster.time.leap(120_000)
    assert (await cluster.vacuum(dry_run=True)).forgotten_producers == 2
    assert await known(cluster, log.tp) == [1, 2, 3]
    assert (await cluster.vacuum()).forgotten_producers == 2
    assert await known(cluster, log.tp) == [3]
    assert (await cluster.vacuum()).forgotten_producers == 0


@pytest.mark.parametrize("is_same_node", [False, True])
async def test_whoever_comes_back_is_told_what_it_would_be_told_anyway(
    cluster: AgingCluster, is_same_node: bool
) -> None:
    """After a day a log takes any first batch, and a batch of before is no duplicate any more."""
    log = await (await cluster.node()).log()
    for sequence in range(3):
        for producer in (1, 2):
            await log.append(make_entry(f"{sequence}", stamp=Stamp(producer, 0, sequence)))
    assert await log.append(make_entry("2", stamp=Stamp(1, 0, 2))) == 4, "a duplicate"
    await log.append(make_entry("plain"))
    cluster.time.leap(SILENT_MS + 1000)
    tail = await log.tail()
    used = log if is_same_node else await (await cluster.node()).log()
    assert await used.append(make_entry("9", stamp=Stamp(2, 0, 9))) == tail, "its record is there, and expired"
    assert (await cluster.vacuum()).forgotten_producers == 1
    assert await used.append(make_entry("9", stamp=Stamp(1, 0, 9))) == tail + 1, "its record is gone"
    assert await used.append(make_entry("9", stamp=Stamp(1, 0, 9))) == tail + 1, "a duplicate"
    with pytest.raises(OutOfOrderSequence):
        await used.append(make_entry("11", stamp=Stamp(1, 0, 11)))
    assert await used.append(make_entry("10", stamp=Stamp(1, 0, 10))) == tail + 2


async def test_a_clock_that_is_ahead_is_no_reason_to_forget_one(cluster: AgingCluster) -> None:
    """Else what it sends again, to another node, would be in the log twice."""
    log = await (await cluster.node()).log()
    entry = make_entry("a", stamp=Stamp(1, 0, 0))
    first = await log.append(entry)
    ahead, driver = type(cluster.time)(), Driver(cluster)
    ahead.leap(2 * SILENT_MS)
    with pytest.raises(NeedsOperator, match="ahead of the object store's"):
        await vacuum(driver.site._replace(clock=ahead), driver.work, SETTINGS)
    assert await known(cluster, log.tp) == [1]
    assert await (await (await cluster.node()).log()).append(entry) == first


async def test_one_that_writes_meanwhile_is_kept(cluster: AgingCluster) -> None:
    log = await (await cluster.node()).log()
    await log.append(make_entry("a", stamp=Stamp(1, 0, 0)))
    await log.append(make_entry("plain"))
    cluster.time.leap(SILENT_MS + 1000)
    driver = Driver(cluster)
    stall = driver.steps.at("delete producer", Stall())
    forgetting = asyncio.ensure_future(forget_silent(driver.site.meta, log.tp, cluster.time.now_ms(), 10))
    await soon(stall.reached.wait())
    offset = await log.append(make_entry("b", stamp=Stamp(1, 0, 7)))
    await log.append(make_entry("plain"))
    stall.let_go()
    await forgetting
    assert await known(cluster, log.tp) == [1]
    assert await (await (await cluster.node()).log()).append(make_entry("b", stamp=Stamp(1, 0, 7))) == offset


async def test_they_are_looked_at_in_pages_and_up_to_a_limit(cluster: AgingCluster) -> None:
    log = await (await cluster.node()).log()
    await log.append(make_entry("a", stamp=Stamp(0, 0, 0)))
    await log.append(make_entry("plain"))
    meta = cluster.stores.meta
    made = await meta.get(keys.producer(log.tp, 0))
    assert made is not None
    count = SCAN_LIMIT + 10
    for number in range(1, count):
        await meta.put(keys.producer(log.tp, number), made.value, ANY)
    later_ms = cluster.time.now_ms() + SILENT_MS + 1000
    assert await forget_silent(meta, log.tp, later_ms, 3) == 3
    assert await forget_silent(meta, log.tp, later_ms, 10 * SCAN_LIMIT, dry_run=True) == count - 3
    assert await forget_silent(meta, log.tp, later_ms, 10 * SCAN_LIMIT) == count - 3
    assert await known(cluster, log.tp) == []
