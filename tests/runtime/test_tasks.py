"""Background tasks: named, bounded, ended together, and never silent about a failure."""

from __future__ import annotations

import asyncio
import logging

import pytest

from catena.runtime import Tasks, shielded
from catena.runtime.tasks import map_bounded


async def test_what_runs_is_counted_and_named() -> None:
    tasks = Tasks("owner")
    go_on = asyncio.Event()
    task = tasks.spawn("wait", go_on.wait())
    assert (len(tasks), task.get_name()) == (1, "owner:wait")
    go_on.set()
    await task
    assert len(tasks) == 0


async def test_close_cancels_in_order_and_waits_until_all_have_ended() -> None:
    tasks = Tasks("owner")
    ended: list[int] = []
    started = asyncio.Event()

    async def wait_for_ever(number: int) -> None:
        try:
            if number == 2:
                started.set()
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    for number in range(3):
        tasks.spawn(str(number), wait_for_ever(number))
    await started.wait()
    await tasks.close()
    assert ended == [0, 1, 2]
    assert tasks.closed
    assert len(tasks) == 0


async def test_nothing_is_started_after_close_or_past_the_limit() -> None:
    tasks = Tasks("owner", limit=1)
    tasks.spawn("first", asyncio.Event().wait())
    with pytest.raises(RuntimeError, match="owner: cannot start task 'second': too many"):
        tasks.spawn("second", asyncio.Event().wait())
    await tasks.close()
    with pytest.raises(RuntimeError, match="owner: cannot start task 'third': closed"):
        tasks.spawn("third", asyncio.Event().wait())


async def test_a_failure_is_logged_with_the_name_of_the_task(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks("owner")

    async def fail() -> None:
        raise ValueError("odd")

    with caplog.at_level(logging.ERROR):
        task = tasks.spawn("fail", fail())
        with pytest.raises(ValueError, match="odd"):
            await task
    assert "task owner:fail failed" in caplog.text
    assert "ValueError: odd" in caplog.text


async def test_close_ends_also_when_a_task_is_done_and_not_yet_forgotten() -> None:
    """From Python 3.12 on, gathering what is done already gives the loop no turn: close must not count on one."""
    tasks = Tasks("owner")
    closing = asyncio.Event()

    async def let_close_begin() -> None:
        closing.set()

    tasks.spawn("short", let_close_begin())
    await closing.wait()
    await asyncio.wait_for(tasks.close(), 5)
    assert len(tasks) == 0


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


async def test_what_is_shielded_goes_on_when_one_who_waits_is_cancelled() -> None:
    tasks = Tasks("owner")
    shared: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait() -> int:
        return await shielded(shared)

    first, second = tasks.spawn("first", wait()), tasks.spawn("second", wait())
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    assert not shared.done()
    shared.set_result(7)
    assert await second == 7
    assert await shielded(shared) == 7


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_a_failure_of_what_is_shielded_is_told_to_those_who_wait_and_to_nobody_else(is_awaited: bool) -> None:
    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    shared: asyncio.Future[int] = loop.create_future()
    outer = shielded(shared)
    if not is_awaited:
        outer.cancel()
        await asyncio.gather(outer, return_exceptions=True)
    shared.set_exception(ValueError("no"))
    if is_awaited:
        with pytest.raises(ValueError, match="no"):
            await outer
    assert isinstance(shared.exception(), ValueError)  # as its owner does
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn  # what asyncio has to tell it tells in a turn of its own
    assert told == []


async def test_what_is_shielded_and_cancelled_is_cancelled_for_those_who_wait() -> None:
    shared: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    outer = shielded(shared)
    shared.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
