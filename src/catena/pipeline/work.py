"""How tasks get done: a job hands over plans, and gets a result or a failure for each.

Tasks are done at least once, anywhere. What one leaves behind when it fails, or when it is done twice, are objects that
nothing refers to. `SparkWork` (pipeline/spark/work.py) does them on Spark, `InlineWork` in this process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from catena.errors import RetryLater
from catena.objects.counted import OperationCounts
from catena.pipeline.tasks import RunTask, TaskContext, run_task
from catena.runtime.tasks import map_bounded

INLINE_AT_ONCE = 4


class TaskFailed(NamedTuple):
    error: str
    """Its type and what it says."""
    is_retriable: bool
    """It was a RetryLater: the same plan may work after a pause."""


class Executor(msgspec.Struct, frozen=True, order=True):
    """Whatever does tasks."""

    host: str
    pid: int
    """Of the process that starts its workers."""

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}"


class Usage(msgspec.Struct, frozen=True):
    """What tasks have asked of the object store."""

    tasks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    requests: dict[str, int] = {}
    """By kind, as objects/counted.py names and counts them; those that failed and were tried again, too."""

    def __add__(self, other: Usage) -> Usage:
        kinds = dict.fromkeys([*self.requests, *other.requests])
        return Usage(
            self.tasks + other.tasks,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            {kind: self.requests.get(kind, 0) + other.requests.get(kind, 0) for kind in kinds},
        )


class Work(Protocol):
    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        """Each plan is done by a task of this name somewhere, at least once; results are in the order of the plans.

        A task that fails does not fail the others. `done` is told of each plan by its place, exactly once, as its task
        ends, in the thread of the event loop. Cancelled, it ends its tasks; some may still be at work for a moment.
        Raises RetryLater when whatever does the tasks is gone for good: a new one has to be opened.
        """

    @property
    def usage(self) -> Mapping[Executor, Usage]:
        """Of all tasks that have ended since this was made, by who did them."""


class InlineWork:
    """In this process, so many at once: for the simulator, and for tests of jobs."""

    def __init__(self, context: TaskContext, run: RunTask = run_task, at_once: int = INLINE_AT_ONCE) -> None:
        self._context = context
        self._run = run
        self._at_once = at_once
        self._tasks = 0
        self._before = context.counted.snapshot()

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        async def do(number: int) -> bytes | TaskFailed:
            result = await attempt(self._run, task, self._context, plans[number])
            self._tasks += 1
            done(number, result)
            return result

        return await map_bounded(self._at_once, do, range(len(plans)))

    @property
    def usage(self) -> Mapping[Executor, Usage]:
        """Whatever else uses the context's store in the meantime is counted here, too."""
        executor = Executor(socket.gethostname(), os.getpid())
        return {executor: used(self._before, self._context.counted.snapshot(), self._tasks)}


async def attempt(run: RunTask, task: str, context: TaskContext, plan: bytes) -> bytes | TaskFailed:
    try:
        return await run(task, context, plan)
    except Exception as error:
        return failure(error)


def failure(error: Exception) -> TaskFailed:
    return TaskFailed(f"{type(error).__name__}: {error}", isinstance(error, RetryLater))


def used(before: Mapping[str, OperationCounts], after: Mapping[str, OperationCounts], tasks: int = 1) -> Usage:
    """Between two snapshots of the counts."""
    asked = {kind: after[kind].requests - before[kind].requests for kind in after}
    moved = {kind: after[kind].bytes - before[kind].bytes for kind in after}
    return Usage(
        tasks, moved["get"] + moved["range_get"], moved["put"], {kind: count for kind, count in asked.items() if count}
    )
