"""A thread that serves asyncio callers in batches.

What is asked while a batch runs waits, and is served together in the next one: that is what makes group commit. A
batch's answers go back to the event loop in one call. The queue is bounded, and so is the time that a caller waits:
what has not been taken from the queue by then was surely not done; what has been taken may have been.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from catena.errors import BackPressure, OutcomeUnknown, StoreUnavailable
from catena.runtime import Clock, Tasks

QUEUE_LIMIT = 20_000
BATCH_COST_MAX = 20_000
CALL_TIMEOUT_S = 10.0
CHECK_INTERVAL_S = 1.0

Request = TypeVar("Request")


def _nothing() -> None:
    pass


class Served(NamedTuple):
    """An answer for each request of a batch, and what to do in the event loop before they are given."""

    answers: list[Any]
    then: Callable[[], object] = _nothing


Serve: TypeAlias = Callable[[Callable[[], list[Request]]], Served]


class _Job(Generic[Request]):
    __slots__ = ("asked_at", "future", "request", "taken")

    def __init__(self, request: Request, future: asyncio.Future[Any], asked_at: float) -> None:
        self.request = request
        self.future = future
        self.asked_at = asked_at
        self.taken = False

    def answer(self, result: Any) -> None:
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class BatchThread(Generic[Request]):
    def __init__(
        self,
        name: str,
        clock: Clock,
        tasks: Tasks,
        serve: Serve[Request],
        finish: Callable[[], None],
        cost: Callable[[Request], int],
    ) -> None:
        """`serve` calls its argument once, to take the requests of the batch; an answer that is an exception is raised
        to the caller, and what it raises itself is the answer to all. `finish` is called in the thread as it ends.
        A batch ends with the request that brings its cost to BATCH_COST_MAX."""
        self._name = name
        self._clock = clock
        self._tasks = tasks
        self._serve = serve
        self._finish = finish
        self._cost = cost
        self._queue: deque[_Job[Request]] = deque()
        self._unanswered: dict[_Job[Request], None] = {}
        self._wakeup = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        self._guarded = False

    async def call(self, request: Request) -> Any:
        if self._closing:
            raise StoreUnavailable(f"the {self._name} is closed")
        if len(self._queue) >= QUEUE_LIMIT:
            raise BackPressure(f"{QUEUE_LIMIT} requests wait for the {self._name}")
        loop = asyncio.get_running_loop()
        job = _Job(request, loop.create_future(), self._clock.monotonic())
        self._unanswered[job] = None
        self._ensure_running(loop)
        with self._wakeup:
            self._queue.append(job)
            self._wakeup.notify()
        try:
            return await job.future
        finally:
            self._unanswered.pop(job, None)

    async def close(self) -> None:
        """What is being served is finished; what still waits is refused."""
        self._closing = True
        with self._wakeup:
            refused = list(self._queue)
            self._queue.clear()
            self._wakeup.notify()
        for job in refused:
            job.answer(StoreUnavailable(f"the {self._name} was closed"))
        if self._thread is not None:
            with suppress(TimeoutError):  # it may wait for a lock that a stopped process holds
                await asyncio.wait_for(self._ended.wait(), CALL_TIMEOUT_S)

    def _ensure_running(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._thread is None:
            # A daemon, so that a store which nobody closed, or whose lock is held by a stopped process, lets the
            # interpreter exit; a commit that is cut off there is cut off as by a crash.
            self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
            self._thread.start()
        if not self._guarded:
            self._guarded = True
            self._tasks.spawn(f"deadlines of the {self._name}", self._guard_deadlines())

    async def _guard_deadlines(self) -> None:
        while self._unanswered:
            await self._clock.sleep(CHECK_INTERVAL_S)
            self._fail_overdue(self._clock.monotonic() - CALL_TIMEOUT_S)
        self._guarded = False

    def _fail_overdue(self, asked_before: float) -> None:
        with self._wakeup:
            overdue = [job for job in self._unanswered if job.asked_at <= asked_before]
            while self._queue and self._queue[0].asked_at <= asked_before:
                self._queue.popleft()
        for job in overdue:
            kind = OutcomeUnknown if job.taken else StoreUnavailable
            job.answer(kind(f"the {self._name} did not answer within {CALL_TIMEOUT_S:g} s"))

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._wait():
            jobs, served = self._serve_batch()
            if not _post(loop, _answer, jobs, served):
                break
        self._finish()
        _post(loop, self._ended.set)

    def _wait(self) -> bool:
        with self._wakeup:
            while not self._queue and not self._closing:
                self._wakeup.wait()
            return bool(self._queue)

    def _serve_batch(self) -> tuple[list[_Job[Request]], Served]:
        jobs: list[_Job[Request]] = []

        def take() -> list[Request]:
            cost = 0
            with self._wakeup:
                while self._queue and cost < BATCH_COST_MAX:
                    job = self._queue.popleft()
                    job.taken = True
                    jobs.append(job)
                    cost += self._cost(job.request)
            return [job.request for job in jobs]

        try:
            return jobs, self._serve(take)
        except Exception as error:  # a bug, too, goes to the callers, and the thread lives on
            failure = error
        if not jobs:
            take()
        return jobs, Served([failure] * len(jobs))


def _answer(jobs: list[_Job[Request]], served: Served) -> None:
    served.then()
    for job, answer in zip(jobs, served.answers, strict=True):
        job.answer(answer)


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> bool:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # the loop was closed: nobody waits for an answer any more
        return False
    return True
