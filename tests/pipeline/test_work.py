from __future__ import annotations

import asyncio

import pytest

from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import InlineWork, TaskFailed, Usage
from catena.runtime import SystemClock, SystemEntropy
from tests.pipeline.deeds import run_deed


@pytest.fixture
def context() -> TaskContext:
    counted = CountedObjects(MemoryObjects(SystemClock()), SystemClock())
    return TaskContext(counted, SystemClock(), SystemEntropy(), counted)


class Done(dict[int, bytes | TaskFailed]):
    """What was told, each once."""

    def __call__(self, number: int, result: bytes | TaskFailed) -> None:
        assert number not in self
        self[number] = result


async def test_results_are_in_the_order_of_the_plans(context: TaskContext) -> None:
    plans, done = [str(number).encode() for number in range(20)], Done()
    assert await InlineWork(context, run_deed).run("echo", plans, done) == plans
    assert [done[number] for number in range(20)] == plans


async def test_nothing_to_do(context: TaskContext) -> None:
    assert await InlineWork(context).run("probe", [], Done()) == []


async def test_a_task_that_fails_is_a_result(context: TaskContext) -> None:
    work, done = InlineWork(context, run_deed), Done()
    failed = TaskFailed("ValueError: it is no good", is_retriable=False)
    assert await work.run("fail", [b"it"], done) == [failed]
    assert done == {0: failed}
    later = TaskFailed("StoreUnavailable: the store is down", is_retriable=True)
    assert await work.run("fail later", [b""], Done()) == [later]


async def test_so_many_at_once(context: TaskContext) -> None:
    running, most = 0, 0

    async def count(_: str, __: TaskContext, plan: bytes) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return plan

    await InlineWork(context, count, at_once=3).run("any", [b""] * 20, Done())
    assert most == 3


async def test_cancelled_it_leaves_no_task_at_work(context: TaskContext) -> None:
    began, ended = asyncio.Event(), []

    async def wait(_: str, __: TaskContext, plan: bytes) -> bytes:
        began.set()
        try:
            return await asyncio.Future()
        finally:
            ended.append(plan)

    running = asyncio.create_task(InlineWork(context, wait, at_once=2).run("any", [b"1", b"2", b"3"], Done()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [b"1", b"2"]


async def test_what_the_store_was_asked(context: TaskContext) -> None:
    await context.objects.put("from", [bytes(1000)])
    work = InlineWork(context, run_deed)
    assert list(work.usage.values()) == [Usage()]
    await work.run("copy", [b"from to"], Done())
    assert list(work.usage.values()) == [Usage(1, 500, 500, {"range_get": 1, "put": 1})]


def test_usages_add_up() -> None:
    one, other = Usage(1, 10, 20, {"get": 1, "put": 2}), Usage(2, 1, 2, {"put": 3, "list": 1})
    assert one + other == Usage(3, 11, 22, {"get": 1, "put": 5, "list": 1})
