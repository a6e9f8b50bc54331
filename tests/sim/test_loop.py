"""The simulated event loop: virtual time, seeded order, and processes that die or freeze at any await."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from sim.loop import PROCESS, Process, SimLoop, Stuck


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(seed=1)
    yield loop
    loop.bury()


def spawn(loop: SimLoop, process: Process, work: Coroutine[Any, Any, object]) -> None:
    loop.create_task(work, context=process.context.copy())


def test_time_moves_only_when_nothing_is_ready(loop: SimLoop) -> None:
    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await loop.sleep(seconds)
            seen.append((name, loop.time()))

        await asyncio.gather(sleeper("late", 3600), sleeper("early", 0.5))
        return seen

    assert loop.run(main()) == [("early", 0.5), ("late", 3600.0)]


def test_timeouts_work_on_virtual_time(loop: SimLoop) -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await loop.sleep(3600)
        return loop.time()

    assert loop.run(main()) == 60


def order_of_five(seed: int) -> list[int]:
    loop = SimLoop(seed)
    seen: list[int] = []

    async def main() -> None:
        async def task(number: int) -> None:
            for _ in range(3):
                seen.append(number)
                await loop.sleep(0)

        await asyncio.gather(*(task(number) for number in range(5)))

    loop.run(main())
    loop.bury()
    return seen


def test_what_is_ready_runs_in_an_order_of_the_seed() -> None:
    orders = {tuple(order_of_five(seed)) for seed in range(20)}
    assert len(orders) > 15
    assert all(order_of_five(seed) == order_of_five(seed) for seed in range(5))


def test_nothing_of_a_crashed_process_runs_any_more(loop: SimLoop) -> None:
    seen: list[str] = []

    async def victim() -> None:
        try:
            seen.append("before")
            await loop.sleep(1)
            seen.append("after")
        finally:
            seen.append("finally")

    async def main() -> None:
        process = Process("p")
        spawn(loop, process, victim())
        process.context.run(loop.call_later, 2, seen.append, "timer")
        await loop.sleep(0.5)
        loop.crash(process)
        await loop.sleep(10)

    loop.run(main())
    assert seen == ["before"]


def test_a_process_that_waits_for_a_future_of_another_stays_dead(loop: SimLoop) -> None:
    seen: list[str] = []

    async def main() -> None:
        process, shared = Process("p"), loop.create_future()

        async def victim() -> None:
            seen.append(await shared)

        spawn(loop, process, victim())
        await loop.sleep(1)
        loop.crash(process)
        shared.set_result("answer")
        await loop.sleep(1)

    loop.run(main())
    assert seen == []


def test_a_paused_process_goes_on_where_it_was_and_its_timers_are_late(loop: SimLoop) -> None:
    seen: list[tuple[str, float]] = []

    async def sleeper() -> None:
        await loop.sleep(1)
        seen.append(("sleeper", loop.time()))

    async def main() -> None:
        process = Process("p")
        spawn(loop, process, sleeper())
        await loop.sleep(0.5)
        loop.pause(process)
        await loop.sleep(99.5)
        assert seen == []
        loop.resume(process)
        await loop.sleep(1)

    loop.run(main())
    assert seen == [("sleeper", 100.0)]


def test_tasks_belong_to_the_process_that_started_them(loop: SimLoop) -> None:
    async def main() -> list[Process | None]:
        owners: list[Process | None] = []

        async def child() -> None:
            owners.append(PROCESS.get())

        async def parent() -> None:
            await asyncio.gather(child(), child())

        process = Process("p")
        spawn(loop, process, parent())
        await loop.sleep(1)
        assert owners == [process, process]
        return owners

    loop.run(main())


@pytest.mark.parametrize("at", range(12))
def test_an_interrupt_strikes_between_any_two_awaits(loop: SimLoop, at: int) -> None:
    seen: list[int] = []

    async def victim() -> None:
        for number in range(10):
            seen.append(number)
            await loop.sleep(0)

    async def main() -> None:
        process = Process("p")
        spawn(loop, process, victim())
        loop.interrupt_in(at, loop.crash)
        await loop.sleep(1)

    loop.run(main())
    assert seen == list(range(min(at, 10)))


def test_a_run_that_waits_for_nothing_is_stuck(loop: SimLoop) -> None:
    async def main() -> None:
        await loop.create_future()

    with pytest.raises(Stuck, match="nothing is left to do"):
        loop.run(main())


def test_a_run_that_spins_is_stuck(loop: SimLoop) -> None:
    async def main() -> None:
        while True:
            await loop.sleep(0)

    with pytest.raises(Stuck, match="still busy"):
        loop.run(main())


def test_what_a_callback_raises_is_kept(loop: SimLoop) -> None:
    async def main() -> None:
        loop.call_soon(lambda: 1 // 0)
        await loop.sleep(1)

    loop.run(main())
    assert len(loop.failures) == 1
    assert "ZeroDivisionError" in loop.failures[0]


def test_a_dead_task_that_awaits_in_its_finally_is_buried_quietly() -> None:
    loop = SimLoop(seed=1)

    async def victim() -> None:
        try:
            await loop.sleep(1)
        finally:
            await loop.sleep(1)

    async def main() -> None:
        process = Process("p")
        spawn(loop, process, victim())
        await loop.sleep(0.5)
        loop.crash(process)

    loop.run(main())
    loop.bury()
    assert loop.failures == []
