"""An asyncio event loop in which time is virtual, order is drawn from a seed, and processes can die or freeze.

Theory of operation
- Time moves only when nothing is ready, and then straight to the next timer, so an hour costs nothing.
- What is ready runs in an order drawn from the seed, not first come first served: all orders that a machine with many
  cores or many processes could show are possible.
- A callback belongs to the process that stands in its context (`PROCESS`). A crashed process's callbacks are dropped:
  nothing of it runs any more, not even a `finally`. A paused one's are parked, timers too, and run once it is resumed.
  Tasks inherit the context, so all that a process ever started is its own.
- What must outlive a process (a request that already left it) is scheduled in a context without it.

What is left of the dead is kept until `bury`: Python runs the `finally` blocks of a coroutine that is garbage
collected, and complains about results that nobody fetched.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import sys
import warnings
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from random import Random
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Chance: TypeAlias = Random
"""A stream of chance. All of a run's are made from its seed, and from names: `Chance("reader 3 of seed 7")`."""

STEPS_MAX = 400_000
"""A run that takes more is going round in circles."""


class Stuck(AssertionError):
    """Nothing can ever happen again, or the same things happen for ever, and the run is not over."""


class Process:
    """One simulated operating-system process; once dead it stays so, and a restart is another Process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.parked: list[asyncio.Handle] = []
        self.context = Context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class SimLoop(asyncio.BaseEventLoop):
    """`run` drives one main coroutine to its end; `crash`, `pause` and `resume` act on processes at once."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._draw = Chance(seed).random
        self._now = 0.0
        self._runnable: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._dead_tasks: list[asyncio.Task[Any]] = []
        self._dropped: list[asyncio.Handle] = []
        self._interrupt_at = -1
        self._interrupt: Callable[[Process], None] | None = None
        self.steps = 0
        self.outside = Context()
        """For callbacks that belong to no process: stores, clients, the world."""
        self.failures: list[str] = []
        """What callbacks raised and nobody handled."""

    def time(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._runnable.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if when <= self._now:
            self._runnable.append(timer)
        else:
            self._timer_count += 1
            heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is skipped when its time comes."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def interrupt_in(self, steps: int, interrupt: Callable[[Process], None]) -> None:
        """After so many steps call `interrupt` with the first process whose turn it is: between two of its awaits."""
        self._interrupt_at = self.steps + steps
        self._interrupt = interrupt

    def crash(self, process: Process) -> None:
        process.alive = False
        # Whatever is under way, of any process: it is only kept, and a live task does not mind.
        self._dead_tasks += asyncio.all_tasks(self)
        self._dropped += process.parked
        process.parked.clear()

    def pause(self, process: Process) -> None:
        process.paused = True

    def resume(self, process: Process) -> None:
        process.paused = False
        self._runnable += process.parked
        process.parked.clear()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until `main` returns; whatever else is under way then stays where it is."""
        events._set_running_loop(self)
        try:
            task = self.create_task(main)
            self._run_until(task)
            return task.result()
        finally:
            events._set_running_loop(None)

    def _run_until(self, task: asyncio.Task[Any]) -> None:
        runnable, draw = self._runnable, self._draw
        while not task.done():
            if not runnable:
                self._advance()
                continue
            at = int(draw() * len(runnable))
            handle = runnable[at]
            last = runnable.pop()
            if last is not handle:
                runnable[at] = last
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if process is not None:
                if self.steps >= self._interrupt_at >= 0:
                    self._fire_interrupt(process)
                if not process.alive:
                    self._dropped.append(handle)
                    continue
                if process.paused:
                    process.parked.append(handle)
                    continue
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise Stuck(f"still busy after {STEPS_MAX} steps, at {self._now:.3f} s")
            handle._run()

    def _fire_interrupt(self, process: Process) -> None:
        interrupt, self._interrupt, self._interrupt_at = self._interrupt, None, -1
        if interrupt is not None:
            interrupt(process)

    def _advance(self) -> None:
        """Move to the next timer; all that are due at that moment become ready together."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stuck(f"nothing is left to do at {self._now:.3f} s, and the run is not over")
        self._now = timers[0][0]
        while timers and timers[0][0] <= self._now:
            self._runnable.append(heapq.heappop(timers)[2])

    def bury(self) -> None:
        """Dispose of every task that is left, once nobody looks at the run any more, and close the loop."""
        left = [*self._dead_tasks, *asyncio.all_tasks(self)]
        with _no_last_words():
            self._dead_tasks.clear()
            self._dropped.clear()
            self._runnable.clear()
            self._timers.clear()
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                # A `finally` that awaits refuses to be closed, and one that finds its world gone may raise anything.
                with contextlib.suppress(BaseException):
                    if coroutine is not None:
                        coroutine.close()
            del left
            self.close()


@contextlib.contextmanager
def _no_last_words() -> Generator[None]:
    """What finalizers raise while a finished run is taken apart says nothing about the run."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        sys.unraisablehook = hook
