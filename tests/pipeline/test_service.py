"""Passes go on until the service is told to end, whatever fails in between."""

from __future__ import annotations

import asyncio

from catena.errors import StoreUnavailable
from catena.pipeline.service import Service
from catena.pipeline.set_aside import FAILURES
from catena.pipeline.settings import PipelineSettings, ServiceSettings
from catena.pipeline.site import Place
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Stall
from tests.pipeline.drivers import SMALL, Driver, append, is_clean
from tests.virtual_log.cluster import Cluster, read_all


def service_of(driver: Driver, *partitions: int, every_ms: int = 1) -> Service:
    async def find_places() -> list[Place]:
        return await driver.places(*partitions)

    return Service(driver.site, driver.work, PipelineSettings(SMALL, ServiceSettings(every_ms)), find_places)


async def test_what_comes_in_is_tiered_pass_after_pass(cluster: Cluster) -> None:
    node = await cluster.node()
    service = service_of(Driver(cluster), 0, 1)
    for number in range(3):
        await append(await node.log(0), f"{number}")
        await service.pass_once()
    log = await node.log(0)
    assert (await log.refresh()).boundary == 3
    assert await read_all(log) == ["0", "1", "2"]
    counts = service.counts
    assert (counts.passes, counts.partitions, counts.candidates, counts.runs) == (3, 2, 1, 3)
    assert counts.outcomes == {"tiered": 3}
    assert counts.last_good_pass_at_ms is not None


async def test_who_keeps_failing_is_set_aside_and_the_rest_goes_on(cluster: Cluster) -> None:
    node = await cluster.node()
    for number in (0, 1):
        await append(await node.log(number), "x")
    (lost,) = await cluster.stores.index((await node.log(1)).tp)
    await cluster.stores.objects.delete([lost.data_key])
    service = service_of(Driver(cluster), 0, 1)
    for _ in range(FAILURES + 2):
        await service.pass_once()
    assert service.counts.outcomes == {"failed": FAILURES, "tiered": 1}
    assert service.counts.partitions == 1
    ((tp, failing),) = service.set_aside.all.items()
    assert (tp.partition, failing.failures) == (1, FAILURES)
    assert lost.data_key in failing.error
    assert service.counts.last_good_pass_at_ms is None


async def test_a_store_that_is_away_costs_a_pass_and_no_more(cluster: Cluster) -> None:
    node = await cluster.node()
    await append(await node.log(0), "x")
    driver = Driver(cluster)
    away = [StoreUnavailable("away")]

    async def find_places() -> list[Place]:
        if away:
            raise away.pop()
        return await driver.places(0)

    service = Service(driver.site, driver.work, PipelineSettings(SMALL), find_places)
    assert await service.pass_once() == []
    assert (service.counts.failed_passes, service.counts.last_error) == (1, "StoreUnavailable: away")
    assert [report.outcome for report in await service.pass_once()] == ["tiered"]


async def test_told_to_end_it_finishes_what_it_has_begun(cluster: Cluster) -> None:
    node = await cluster.node()
    await append(await node.log(0), "x")
    driver = Driver(cluster)
    stall = driver.steps.at("manifest put", Stall())
    service = service_of(driver, 0, every_ms=1_000_000)
    running = asyncio.ensure_future(service.run())
    await soon(stall.reached.wait())
    service.end()
    stall.let_go()
    await soon(running)
    assert service.counts.outcomes == {"tiered": 1}
    await is_clean(cluster, (await node.log(0)).tp, 1)


async def test_services_share_the_work(cluster: Cluster) -> None:
    node = await cluster.node()
    for number in range(10):
        await append(await node.log(number), "x")
    services = [service_of(Driver(cluster), *range(10)) for _ in range(3)]
    await asyncio.gather(*(service.pass_once() for service in services))
    assert sum(service.counts.outcomes.get("tiered", 0) for service in services) >= 1
    for service in services:
        await service.pass_once()
    for number in range(10):
        assert await read_all(await node.log(number)) == ["x"]
        assert (await (await node.log(number)).refresh()).boundary == 1
