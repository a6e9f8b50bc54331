"""Slices make up the whole, and others get their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.sliced_work import SlicedWork
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import InlineWork, TaskFailed
from catena.runtime import SystemClock, SystemEntropy


def inline(run: Callable[..., object]) -> InlineWork:
    clock = SystemClock()
    objects = CountedObjects(MemoryObjects(clock), clock)

    async def do(name: str, context: TaskContext, plan: bytes) -> bytes:
        run(plan)
        return plan

    return InlineWork(TaskContext(objects, clock, SystemEntropy(), objects), do, at_once=1)


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
async def test_results_are_those_of_the_whole(at_once: int) -> None:
    def run(plan: bytes) -> None:
        if plan == b"5":
            raise ValueError("five")

    plans = [b"%d" % number for number in range(7)]
    told: dict[int, bytes | TaskFailed] = {}
    work = SlicedWork(inline(run), at_once)
    results = await work.run("echo", plans, told.__setitem__)
    assert results == [*plans[:5], TaskFailed("ValueError: five", False), plans[6]]
    assert [told[number] for number in range(7)] == results
    assert [usage.tasks for usage in work.usage.values()] == [7]
    assert await work.run("echo", [], told.__setitem__) == []


class FirstComeFirstServed:
    """As Spark does it."""

    def __init__(self, work: InlineWork) -> None:
        self._work = work
        self._turn = asyncio.Lock()
        self.table = work.table
        self.usage = work.usage

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        async with self._turn:
            await asyncio.sleep(0)  # whoever else wants to can get in line
            return await self._work.run(task, plans, done)


async def test_who_comes_later_waits_for_a_slice_and_no_more() -> None:
    done: list[bytes] = []
    work = FirstComeFirstServed(inline(done.append))
    long = SlicedWork(work, 2).run("audit", [b"%d" % number for number in range(6)], lambda *_: None)
    short = work.run("segments", [b"short"], lambda *_: None)
    await asyncio.gather(long, short)
    assert done == [b"0", b"1", b"short", b"2", b"3", b"4", b"5"]
