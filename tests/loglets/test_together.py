"""Reads of a request want what they want at different times, and what lies in one object is got once all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import pytest

from catena.errors import StoreUnavailable
from catena.loglets import together
from catena.loglets.together import HOLD_MAX_S, read_together
from catena.testing.contracts.loglet import soon
from tests.loglets.test_pieces import Reading

Read: TypeAlias = Callable[[], Coroutine[Any, Any, list[int]]]


@pytest.fixture(autouse=True)
def is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a request would hold anything back."""
    monkeypatch.setattr(together, "HOLD_MAX_S", 3600)


@pytest.fixture
async def reading() -> Reading:
    reading = Reading()
    await reading.put("object", 20)
    return reading


async def later(reading: Reading, turns: int, *numbers: int) -> list[int]:
    """A read that learns where its bytes are after so many turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return await reading.read(*numbers)


async def test_each_learns_of_its_place_in_another_turn(reading: Reading) -> None:
    reads = [partial(later, reading, 3 * number, number) for number in range(16)]
    assert await read_together(reads) == [[number] for number in range(16)]
    assert reading.gets == 1


async def test_without_it_they_cost_a_get_each(reading: Reading) -> None:
    await asyncio.gather(*(later(reading, 9 * number, number) for number in range(4)))
    assert reading.gets == 4


async def test_one_that_ends_without_a_wish_or_fails_holds_nobody_up(reading: Reading) -> None:
    async def nothing() -> list[int]:
        await asyncio.sleep(0)
        return []

    async def broken() -> list[int]:
        await asyncio.sleep(0)
        raise StoreUnavailable("away")

    async def caught() -> list[int]:
        try:
            return await broken()
        except StoreUnavailable:
            return [-1]

    reads: list[Read] = [partial(later, reading, 2, 1), nothing, caught, partial(later, reading, 0, 2)]
    assert await read_together(reads) == [[1], [], [-1], [2]]
    assert reading.gets == 1


async def test_what_is_kept_already_is_a_wish_as_well(reading: Reading) -> None:
    await reading.read(3)
    assert await read_together([partial(reading.read, 3), partial(later, reading, 5, 4)]) == [[3], [4]]
    assert reading.gets == 2


async def test_one_that_takes_long_is_not_waited_for(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "HOLD_MAX_S", HOLD_MAX_S)
    read, may_go_on = asyncio.Event(), asyncio.Event()

    async def first() -> list[int]:
        found = await reading.read(1)
        read.set()
        return found

    async def slow() -> list[int]:
        await may_go_on.wait()
        return await reading.read(2)

    both = asyncio.ensure_future(read_together([first, slow]))
    await soon(read.wait())
    may_go_on.set()
    assert await both == [[1], [2]]
    assert reading.gets == 2


async def test_who_reads_alone_does_not_wait_for_others(reading: Reading) -> None:
    """Nor for a request that holds back the same object: what that wants comes along."""
    may_go_on = asyncio.Event()

    async def slow() -> list[int]:
        await may_go_on.wait()
        return await reading.read(2)

    reads: list[Read] = [partial(reading.read, 1), slow]
    both = asyncio.ensure_future(read_together(reads))
    for _ in range(5):
        await asyncio.sleep(0)
    assert reading.gets == 0
    assert await reading.read(3) == [3]
    may_go_on.set()
    assert await both == [[1], [2]]
    assert reading.gets == 2


async def test_who_is_held_back_when_the_end_comes_is_told(reading: Reading) -> None:
    async def slow() -> list[int]:
        await asyncio.Event().wait()
        return []

    reads: list[Read] = [partial(reading.read, 1), slow]
    held = asyncio.ensure_future(read_together(reads))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await reading.tasks.close()
    with pytest.raises(StoreUnavailable):
        await held
