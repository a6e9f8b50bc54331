"""What is done to processes during a run: killed, stopped, ended, each at its time; and written down when it was."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

import msgspec

from catena.errors import CatenaError
from catena.loadtest.scenario import RESUME_AFTER_S, Event
from catena.loadtest.stack import Stack
from catena.local_cluster.cluster import Progress
from catena.runtime import Clock, Tasks

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "end": signal.SIGTERM}


class Happened(msgspec.Struct, frozen=True):
    """A line of events.jsonl."""

    t: float
    what: str
    """`kill`, `stop`, `end`, `resume`, `restart`, `restarted`, or `failed`."""
    target: str
    why: str = ""


class Faults:
    def __init__(self, stack: Stack, clock: Clock, progress: Progress, tell: Callable[[Happened], None]) -> None:
        self._stack = stack
        self._clock = clock
        self._progress = progress
        self._tell = tell
        self._tasks = Tasks("faults")
        self._restarting = asyncio.Lock()
        self._stopped: list[str] = []
        """Once for each event that wants it to stand still."""
        self._origin = 0.0

    def begin(self, events: Sequence[Event], origin: float, measured_from: float, duration_s: float) -> None:
        """`origin`: what lines count from; `measured_from`: what the events do."""
        self._origin = origin
        for event in events:
            self._tasks.spawn(event.target, self._happen(event, measured_from + event.at_s(duration_s)))

    async def close(self) -> None:
        """What has not happened yet does not happen. But who stands still goes on: it has to be asked afterwards."""
        await self._tasks.close()
        while self._stopped:
            self._resume(self._stopped[0])

    async def _happen(self, event: Event, at: float) -> None:
        await self._sleep_until(at)
        if not self._stack.signal(event.target, SIGNALS[event.action]):
            self._say("failed", event.target, "it did not run")
            return
        self._say(event.action, event.target)
        if event.action == "stop":
            self._stopped.append(event.target)
            await self._clock.sleep(event.resume_after_s or RESUME_AFTER_S)
            self._resume(event.target)
        elif event.restart_after_s is not None:
            await self._clock.sleep(event.restart_after_s)
            self._say("restart", event.target)
            try:
                async with self._restarting:
                    await self._stack.restart(event.target, self._progress)
            except CatenaError as error:
                self._say("failed", event.target, str(error))
            else:
                self._say("restarted", event.target)

    def _resume(self, target: str) -> None:
        self._stopped.remove(target)
        if target not in self._stopped:
            self._stack.signal(target, signal.SIGCONT)
            self._say("resume", target)

    async def _sleep_until(self, at: float) -> None:
        await self._clock.sleep(max(0.0, at - self._clock.monotonic()))

    def _say(self, what: str, target: str, why: str = "") -> None:
        self._tell(Happened(round(self._clock.monotonic() - self._origin, 3), what, target, why))
