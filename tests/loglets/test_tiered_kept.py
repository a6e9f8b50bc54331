"""Loaded once, kept while there is room, and nobody is left waiting."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from catena.errors import ObjectMissing, StoreUnavailable
from catena.loglets.tiered.kept import Kept, Sized
from catena.runtime import Tasks
from catena.testing.contracts.loglet import soon


class Shelf:
    """What is kept of values that are their keys in capitals; a load waits for `gate`, and fails for keys in `lost`."""

    def __init__(self, max_bytes: int = 100) -> None:
        self.tasks = Tasks("test")
        self.kept: Kept[str] = Kept(self.tasks, max_bytes)
        self.loads: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()
        self.lost: list[str] = []

    async def get(self, key: str, size: int = 10) -> str:
        async def load() -> Sized[str]:
            self.loads[key] += 1
            await self.gate.wait()
            if key in self.lost:
                raise ObjectMissing(key)
            return Sized(key.upper(), size)

        return await self.kept.get(key, load)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_it_is_loaded_once() -> None:
    shelf = Shelf()
    assert [await shelf.get("a") for _ in range(3)] == ["A"] * 3
    assert shelf.loads == {"a": 1}


async def test_all_who_ask_meanwhile_wait_for_the_same_load() -> None:
    shelf = Shelf()
    shelf.gate.clear()
    first, *others = (asyncio.ensure_future(shelf.get("a")) for _ in range(4))
    await turns()
    first.cancel()
    await turns()
    shelf.gate.set()
    assert await asyncio.gather(*others) == ["A"] * 3
    assert shelf.loads == {"a": 1}


async def test_what_was_not_used_for_longest_goes_first() -> None:
    shelf = Shelf(max_bytes=30)
    for key in ("a", "b", "c", "a", "d"):
        await shelf.get(key)
    for key in ("a", "c", "d"):
        await shelf.get(key)
    assert shelf.loads == {"a": 1, "b": 1, "c": 1, "d": 1}
    await shelf.get("b")
    assert shelf.loads["b"] == 2


async def test_one_stays_whatever_its_size() -> None:
    shelf = Shelf(max_bytes=30)
    await shelf.get("a")
    for _ in range(2):
        assert await shelf.get("large", size=1000) == "LARGE"
    assert shelf.loads == {"a": 1, "large": 1}
    await shelf.get("a")
    assert shelf.loads == {"a": 2, "large": 1}
    await shelf.get("b")
    await shelf.get("a")
    assert shelf.loads["a"] == 2


async def test_an_error_is_told_to_all_who_wait_and_not_kept() -> None:
    shelf = Shelf()
    shelf.lost.append("a")
    outcomes = await asyncio.gather(*(shelf.get("a") for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ObjectMissing] * 3
    assert shelf.loads == {"a": 1}
    shelf.lost.clear()
    assert await shelf.get("a") == "A"


async def test_an_error_that_nobody_waits_for_any_more_does_no_harm() -> None:
    shelf = Shelf()
    shelf.lost.append("a")
    shelf.gate.clear()
    impatient = asyncio.ensure_future(shelf.get("a"))
    await turns()
    impatient.cancel()
    shelf.gate.set()
    await turns()
    with pytest.raises(ObjectMissing):
        await shelf.get("a")


async def test_who_waits_when_the_end_comes_is_told() -> None:
    shelf = Shelf()
    shelf.gate.clear()
    waiting = asyncio.ensure_future(shelf.get("a"))
    await turns()
    await shelf.tasks.close()
    with pytest.raises(StoreUnavailable):
        await soon(waiting)
    with pytest.raises(StoreUnavailable):
        await shelf.get("b")


async def test_who_has_just_asked_when_the_end_comes_is_told() -> None:
    shelf = Shelf()
    waiting = asyncio.ensure_future(shelf.get("a"))
    await asyncio.sleep(0)
    assert not shelf.loads
    await shelf.tasks.close()
    with pytest.raises(StoreUnavailable):
        await soon(waiting)
