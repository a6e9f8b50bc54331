"""A service is found while it lives."""

from __future__ import annotations

import logging

import pytest

from catena.cluster.services import EVERY_S, SESSION_TTL_MS, Announcement, ServiceRecord, announce, find_services
from catena.cluster.view import Address
from catena.errors import CatenaError, Corrupt, OutcomeUnknown, SessionExpired, StoreUnavailable
from catena.meta import keys
from catena.runtime import SystemEntropy
from catena.testing.faults import Fail, kind_of
from tests.cluster.world import NodeMeta, World

HERE = ServiceRecord(Address("host", 8081), "1.2", 1_000_000)
PUT = f"put {kind_of(keys.service('x'))}"


async def announced(world: World, meta: NodeMeta) -> Announcement:
    service = Announcement(meta, world.clock, "x", HERE)
    await service.start()
    return service


async def found(world: World) -> list[ServiceRecord]:
    return await find_services(world.open())


async def until_found(world: World) -> None:
    """What is on its way to the store needs no time of the clock, but some of ours."""
    while not await found(world):
        await world.clock.advance(0)


async def test_from_its_start_to_its_end(world: World) -> None:
    services = [await announce(world.open(), world.clock, SystemEntropy(), HERE.http, HERE.version) for _ in range(2)]
    assert await found(world) == [HERE, HERE]
    await services[0].close()
    assert await found(world) == [HERE]
    await services[1].close()
    assert await found(world) == []


async def test_one_that_dies_is_gone_with_its_session(world: World) -> None:
    meta = world.open()
    service = await announced(world, meta)
    meta.is_down = True
    await meta.lose_session()
    await world.clock.advance(2 * EVERY_S)
    assert await found(world) == []
    await service.close()


async def test_a_session_that_is_lost_is_followed_by_another(world: World) -> None:
    meta = world.open()
    service = await announced(world, meta)
    await meta.lose_session()
    assert await world.until(lambda: meta.faults.taken[PUT] == 2) < 2 * EVERY_S
    await until_found(world)
    await service.close()
    assert await found(world) == []


@pytest.mark.parametrize(
    ("error", "applied"),
    [
        (StoreUnavailable("away"), False),
        (SessionExpired("gone"), False),
        (OutcomeUnknown("lost"), False),
        (OutcomeUnknown("applied"), True),
    ],
    ids=["away", "expired", "lost", "applied"],
)
async def test_a_store_in_trouble_stops_nothing_and_is_asked_again(
    world: World, error: CatenaError, applied: bool, caplog: pytest.LogCaptureFixture
) -> None:
    meta = world.open()
    for nth in (1, 2):
        meta.faults.at(PUT, Fail(error, applied), nth)
    service = await announced(world, meta)
    await world.until(lambda: meta.faults.taken[PUT] == 3, 3 * EVERY_S)
    await until_found(world)
    assert [each.levelno for each in caplog.records] == [logging.WARNING], "once for all tries"
    await service.close()
    assert await found(world) == []


def test_a_session_outlives_a_few_looks() -> None:
    assert SESSION_TTL_MS / 1000 > 2 * EVERY_S


async def test_a_record_that_is_none(world: World) -> None:
    meta = world.open()
    await meta.put(keys.service("x"), b"what?")
    with pytest.raises(Corrupt, match="llog/services/x"):
        await find_services(meta)
