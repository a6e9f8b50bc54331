"""Read when somebody asks, and it is old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catena.errors import StoreUnavailable
from catena.metrics.lazily import Lazily
from catena.runtime import Tasks
from tests.meta.manual_clock import ManualClock


class Store:
    def __init__(self) -> None:
        self.reads = 0
        self.is_away = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def read(self) -> int:
        self.reads += 1
        await self.may_go_on.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        return self.reads


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks("test")
    yield tasks
    await tasks.close()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nobody_asks_and_nothing_is_read(tasks: Tasks) -> None:
    clock, store = ManualClock(), Store()
    Lazily("it", store.read, 10, clock, tasks)
    await clock.advance(1_000)
    assert store.reads == 0


async def test_the_first_one_waits_and_others_get_what_there_is(tasks: Tasks) -> None:
    clock, store = ManualClock(), Store()
    value = Lazily("it", store.read, 10, clock, tasks)
    assert await value.get() == 1
    await clock.advance(9)
    assert (await value.get(), store.reads) == (1, 1)
    await clock.advance(1)
    assert await value.get() == 1, "it is read meanwhile"
    await settle()
    assert await value.get() == 2


async def test_who_asks_seldom_is_not_told_of_old_times(tasks: Tasks) -> None:
    clock, store = ManualClock(), Store()
    value = Lazily("it", store.read, 10, clock, tasks)
    assert await value.get() == 1
    await clock.advance(20)
    assert await value.get() == 2, "what there is is too old"


async def test_a_read_that_takes_long_holds_up_nobody_but_those_who_ask_first(tasks: Tasks) -> None:
    clock, store = ManualClock(), Store()
    store.may_go_on.clear()
    value = Lazily("it", store.read, 10, clock, tasks)
    value.start()
    await clock.advance(3)
    async with asyncio.timeout(1):
        assert await value.get(max_wait_s=3) is None
    store.may_go_on.set()
    await settle()
    assert (await value.get(), store.reads) == (1, 1)


async def test_there_is_one_read_at_a_time(tasks: Tasks) -> None:
    clock, store = ManualClock(), Store()
    store.may_go_on.clear()
    value = Lazily("it", store.read, 10, clock, tasks)
    assert await asyncio.gather(*(value.get(max_wait_s=0) for _ in range(5))) == [None] * 5
    assert store.reads == 1
    store.may_go_on.set()
    await settle()
    assert await value.get() == 1


async def test_what_fails_is_counted_and_leaves_what_was_known(tasks: Tasks) -> None:
    clock, store = ManualClock(), Store()
    value = Lazily("it", store.read, 10, clock, tasks)
    await value.get()
    store.is_away = True
    for failures in (1, 2):
        await clock.advance(10)
        assert await value.get() == 1
        await settle()
        assert (await value.get(), value.failures) == (1, failures)
        assert store.reads == 1 + failures, "not again before its time"


async def test_a_store_that_was_never_there(tasks: Tasks) -> None:
    store = Store()
    store.is_away = True
    value = Lazily("it", store.read, 10, ManualClock(), tasks)
    assert await value.get() is None
    assert value.failures == 1
