"""How tasks get done: a job hands over plans, and gets a result or a failure for each.

Tasks are done at least once, anywhere. What one leaves behind when it fails, or when it is done twice, are objects that
nothing refers to. `SparkWork` (pipeline/spark/work.py) does them on Spark, `InlineWork` in this process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

import msgspec

from catena.counting import OperationCounts
from catena.errors import NeedsOperator, RetryLater
from catena.pipeline.tasks import RunTask, TaskContext, listing, run_task
from catena.runtime.tasks import map_bounded

INLINE_AT_ONCE = 4
ROWS_AT_ONCE = 1000


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


class Row(NamedTuple):
    key: str
    size: int


class Table(Protocol):
    """Rows that tasks have listed. They stay where they were listed, until they are asked for."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What the tasks have counted, all together; `rows` is how many there were at first."""

    async def remove(self, keys: Collection[str]) -> None:
        """Rows with these keys are not asked for. There need not be such rows."""

    def rows(self) -> AsyncGenerator[Sequence[Row], None]:
        """Those that were not removed, each once, up to ROWS_AT_ONCE at a time. Nothing is removed any more."""


class Work(Protocol):
    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        """Each plan is done by a task of this name somewhere, at least once; results are in the order of the plans.

        A task that fails does not fail the others. `done` is told of each plan by its place, exactly once, as its task
        ends, in the thread of the event loop. Cancelled, it ends its tasks; some may still be at work for a moment.
        Raises RetryLater when whatever does the tasks is gone for good: a new one has to be opened.
        """

    def table(self, task: str, plans: Sequence[bytes]) -> AbstractAsyncContextManager[Table]:
        """What tasks of this name list: each result is a `Listed`, and no key is in two of them.

        All is listed once the context is entered. A task MUST list no more if it is done again at any later time: what
        was listed may get lost, and then is listed once more. Raises RetryLater if a task has failed that may work
        after a pause, NeedsOperator if one has failed otherwise.
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

    @asynccontextmanager
    async def table(self, task: str, plans: Sequence[bytes]) -> AsyncIterator[Table]:
        results = await self.run(task, plans, lambda *_: None)
        yield InlineTable([listing.decode(require_done(result)) for result in results])

    @property
    def usage(self) -> Mapping[Executor, Usage]:
        """Whatever else uses the context's store in the meantime is counted here, too."""
        executor = Executor(socket.gethostname(), os.getpid())
        return {executor: used(self._before, self._context.counted.snapshot(), self._tasks)}


class InlineTable:
    """In the memory of this process."""

    def __init__(self, listed: Sequence[listing.Listed]) -> None:
        self._rows = {key: size for each in listed for key, size in zip(each.keys, each.sizes, strict=True)}
        self.counts = add_counts(each.totals for each in listed)

    async def remove(self, keys: Collection[str]) -> None:
        for key in keys:
            self._rows.pop(key, None)

    async def rows(self) -> AsyncGenerator[Sequence[Row], None]:
        rows = [Row(*item) for item in self._rows.items()]
        for start in range(0, len(rows), ROWS_AT_ONCE):
            yield rows[start : start + ROWS_AT_ONCE]


def add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def require_done(result: bytes | TaskFailed) -> bytes:
    if isinstance(result, TaskFailed):
        raise (RetryLater if result.is_retriable else NeedsOperator)(f"a task has failed: {result.error}")
    return result


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
