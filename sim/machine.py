"""A machine: it runs one process at a time, and clients speak to the node in it from outside of all processes.

A call is as one over a network: the work runs in the node's process, and the caller gets its answer, or `NoAnswer` when
the process dies or the caller's patience ends; then the work may have been done, may be done yet, or never. A machine
starts a new process some time after a crash.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from catena.errors import OutcomeUnknown, RetryLater
from sim.history import History
from sim.loop import Chance, Process, SimLoop
from sim.runtime import SimClock, SimEntropy

N = TypeVar("N")
T = TypeVar("T")

RESTART_S = 2.0


class NotConnected(Exception):
    """No node runs on this machine now; nothing was sent."""


class NoAnswer(Exception):
    """The node died, or took too long: the work may or may not be done, now or later."""


class Machine(ABC, Generic[N]):
    """`N` is the node: what a process of this machine is made of."""

    def __init__(self, name: str, loop: SimLoop, random: Chance, history: History, skew_ms: int) -> None:
        self.name = name
        self.process: Process | None = None
        self.node: N | None = None
        self._loop = loop
        self._random = random
        self._history = history
        self._skew_ms = skew_ms
        self._starts = 0
        self._calls: dict[asyncio.Future[Any], asyncio.Task[Any]] = {}

    @abstractmethod
    async def _start_node(self, clock: SimClock, entropy: SimEntropy) -> N:
        """One attempt; it is made again after a RetryLater or an OutcomeUnknown."""

    def start(self) -> None:
        """Begin a new process; it retries until its node is up."""
        self._starts += 1
        self.process = process = Process(f"{self.name}#{self._starts}")
        self._history.note(f"{process} starts")
        self._loop.create_task(self._run(), context=process.context)

    async def _run(self) -> None:
        clock = SimClock(self._loop, self._random.randint(-1, 1) * self._skew_ms)
        entropy = SimEntropy(self._random.getrandbits(64))
        while True:
            try:
                self.node = await self._start_node(clock, entropy)
                return
            except (RetryLater, OutcomeUnknown):
                await clock.sleep(0.1)

    def crashed(self, process: Process) -> None:
        """Clients see their connections break; some time later the machine is up again."""
        if process is not self.process:
            return
        self.node = None
        self._hang_up(f"{process} died")
        delay = RESTART_S * self._random.random()
        self._loop.call_later(delay, self.start, context=self._loop.outside)

    def kill(self) -> None:
        """End the process as `kill -9` would."""
        process = self.process
        if process is not None and process.alive:
            self._history.note(f"{process} killed")
            self._loop.crash(process)
            self.crashed(process)

    def _connect(self) -> tuple[N, Process]:
        node, process = self.node, self.process
        if node is None or process is None or not process.alive:
            raise NotConnected(self.name)
        return node, process

    async def _run_in_process(
        self, process: Process, work: Coroutine[Any, Any, T], patience_s: float, is_cancelled: Callable[[], bool]
    ) -> T:
        """`is_cancelled` is asked once patience ends: whether the caller takes its work along."""
        loop = self._loop
        answer: asyncio.Future[T] = loop.create_future()
        task = loop.create_task(work, context=process.context.copy())
        self._calls[answer] = task
        task.add_done_callback(partial(_answer, answer), context=loop.outside)
        timer = loop.call_later(patience_s, self._lose_patience, answer, is_cancelled, context=loop.outside)
        try:
            return await answer
        finally:
            timer.cancel()
            self._calls.pop(answer, None)

    def _lose_patience(self, answer: asyncio.Future[Any], is_cancelled: Callable[[], bool]) -> None:
        task = self._calls.get(answer)
        _give_up(answer, "no answer in time")
        if task is not None and is_cancelled():
            task.cancel()

    def _hang_up(self, why: str) -> None:
        for answer in list(self._calls):
            _give_up(answer, why)


def _answer(answer: asyncio.Future[T], task: asyncio.Task[T]) -> None:
    error = None if task.cancelled() else task.exception()
    if answer.done():
        return
    if task.cancelled():
        answer.set_exception(NoAnswer("cancelled"))
    elif error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


def _give_up(answer: asyncio.Future[Any], why: str) -> None:
    if not answer.done():
        answer.set_exception(NoAnswer(why))
