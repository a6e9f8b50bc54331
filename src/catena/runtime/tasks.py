"""Background work: every task has a name and an owner, their number is bounded, and a failure is never silent."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

MAX_TASKS = 100_000


class Tasks:
    """Tasks of one owner, ended together by `close`. Kept in a dict, so that they are cancelled in a fixed order."""

    def __init__(self, owner: str, limit: int = MAX_TASKS) -> None:
        self._owner = owner
        self._limit = limit
        self._running: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        if self._closed or len(self._running) >= self._limit:
            work.close()
            raise RuntimeError(f"{self._owner}: cannot start task {name!r}: {'closed' if self._closed else 'too many'}")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}:{name}")
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return len(self._running)

    async def close(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        self._closed = True
        while self._running:
            tasks = list(self._running)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Not left to `_ended`: where all have ended before, gather does not wait, and `_ended` gets no turn.
            for task in tasks:
                self._running.pop(task, None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)


def shielded(inner: asyncio.Future[T]) -> asyncio.Future[T]:
    """To be awaited by one of several: if that one is cancelled, `inner` goes on.

    As asyncio.shield, but for what this does from Python 3.14 on: where nobody waits any more it reports a failure of
    `inner` as an error of the loop, also if its owner looks at it later.
    """
    if inner.done():
        return inner
    outer: asyncio.Future[T] = inner.get_loop().create_future()

    def tell(inner: asyncio.Future[T]) -> None:
        if outer.done():
            if not inner.cancelled():
                inner.exception()  # taken: there is nobody left to tell
        elif inner.cancelled():
            outer.cancel()
        elif (error := inner.exception()) is not None:
            outer.set_exception(error)
        else:
            outer.set_result(inner.result())

    inner.add_done_callback(tell)
    # Who waits long for nothing leaves nothing behind.
    outer.add_done_callback(lambda _: inner.remove_done_callback(tell))
    return outer


async def map_bounded(at_once: int, function: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """`function` of each item, in their order; so many run at the same time. Once one has raised, none is begun."""
    results: dict[int, R] = {}
    waiting = deque(range(len(items)))

    async def work() -> None:
        try:
            while waiting:
                number = waiting.popleft()
                results[number] = await function(items[number])
        except BaseException:
            waiting.clear()
            raise

    # Few workers instead of a task for each item: there may be 10,000 of them.
    workers = (work() for _ in range(min(at_once, len(items))))
    for outcome in await asyncio.gather(*workers, return_exceptions=True):
        if outcome is not None:
            raise outcome
    return [results[number] for number in range(len(items))]
