"""Many are asked at once, but not too many."""

from __future__ import annotations

import asyncio

import pytest

from catena.broker.handling import map_bounded


async def test_results_are_in_order_and_few_run_at_once() -> None:
    running, most = 0, 0

    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        running -= 1
        return 2 * number

    assert await map_bounded(4, double, range(100)) == [2 * number for number in range(100)]
    assert most == 4
    assert await map_bounded(4, double, []) == []


async def test_after_an_error_none_is_begun_and_none_is_left_running() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        if number == 1:
            raise ValueError("one")
        await asyncio.sleep(0)
        ended.append(number)

    with pytest.raises(ValueError, match="one"):
        await map_bounded(3, work, range(100))
    assert begun == [0, 1, 2]
    assert ended == [0, 2]
