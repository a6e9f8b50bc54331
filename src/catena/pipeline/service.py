"""The service: jobs that are run again and again, each on its own schedule, until they are told to end.

**They run beside each other**, on one session of Spark. Each is made to be safe beside all others, since other
processes may run them at any time; so there is no lock to get wrong, and a job that is due does not wait for one that
takes hours. What they share are the slots of Spark, and there the long one, the audit, asks for little at a time
(`sliced_work`).

**A job that fails** is counted, its error is shown, and it is tried again when it is due next. It does not stop
the others, even if what it raised is a bug.

**Told to end**, all jobs are told to stop, and do so between two commits. One that changes nothing has no commits, and
is cut off where it is. Killed, they leave what the next run of anyone finishes.

**First runs.** What costs little begins at once. What reads or lists everything begins after a random part of its
period, so that services that are started together, or again and again, do not all do it at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from catena.errors import CatenaError
from catena.runtime import Clock, Entropy, Tasks

log = logging.getLogger(__name__)

T = TypeVar("T")

Outcome: TypeAlias = Literal["good", "partly", "stopped", "failed"]
"""All was done; some of it failed, or damage was found; it was told to stop; it could not be done."""
ShouldStop: TypeAlias = Callable[[], bool]
Note: TypeAlias = Callable[[str, float, int], Awaitable[None]]
"""Told of each good run: the job, the seconds that it took, and how often it is due, in ms."""
ERROR_CHARS_MAX = 1000


class Ran(NamedTuple):
    outcome: Outcome = "good"
    error: str = ""


class Job(NamedTuple):
    name: str
    every_ms: int
    """From the end of one run to the next, a quarter more or less; 0: never."""
    run: Callable[[ShouldStop], Coroutine[Any, Any, Ran]]
    begins_at_once: bool = True
    by_schedule_only: bool = False
    """It is not part of `run_once`."""
    changes_nothing: bool = False


class JobCounts(msgspec.Struct):
    """Since the service began."""

    every_ms: int
    runs: dict[Outcome, int] = msgspec.field(default_factory=lambda: dict.fromkeys(get_args(Outcome), 0))
    seconds: float = 0.0
    """That all runs took."""
    running_since_ms: int | None = None
    last_seconds: float = 0.0
    last_outcome: Outcome | None = None
    last_at_ms: int | None = None
    """When the last run ended."""
    last_good_at_ms: int | None = None
    last_error: str = ""
    """Of the last run that was not good."""

    def add(self, ran: Ran, seconds: float, now_ms: int) -> None:
        self.runs[ran.outcome] += 1
        self.seconds += seconds
        self.last_seconds = seconds
        self.last_outcome = ran.outcome
        self.last_at_ms = now_ms
        if ran.outcome == "good":
            self.last_good_at_ms = now_ms
        self.last_error = ran.error[:ERROR_CHARS_MAX] or self.last_error

    @property
    def is_in_trouble(self) -> bool:
        """As far as the last run tells."""
        return self.last_outcome in ("partly", "failed")


class Service:
    def __init__(self, jobs: Sequence[Job], clock: Clock, entropy: Entropy, note: Note | None = None) -> None:
        self._jobs = [job for job in jobs if job.every_ms]
        self._clock = clock
        self._entropy = entropy
        self._tasks = Tasks("pipeline service")
        self._cut_at_end: dict[asyncio.Task[Any], None] = {}
        self._ending = False
        self._note = note
        self.counts = {job.name: JobCounts(job.every_ms) for job in jobs}

    def end(self) -> None:
        self._ending = True
        for task in self._cut_at_end:
            task.cancel()

    @property
    def is_ending(self) -> bool:
        return self._ending

    async def run(self) -> None:
        """Until `end` is called."""
        repeating = [self._tasks.spawn(job.name, self._repeat(job)) for job in self._jobs]
        try:
            await asyncio.gather(*repeating)
        finally:
            for task in repeating:
                task.cancel()

    async def run_once(self) -> None:
        """Each job once, one after the other."""
        for job in self._jobs:
            if not self._ending and not job.by_schedule_only:
                await self._run(job)

    async def close(self) -> None:
        await self._tasks.close()

    async def _repeat(self, job: Job) -> None:
        if not job.begins_at_once:
            await self._pause(job, self._entropy.jitter())
        while not self._ending:
            await self._run(job)
            await self._pause(job, 0.75 + self._entropy.jitter() / 2)

    async def _run(self, job: Job) -> None:
        clock, counts = self._clock, self.counts[job.name]
        began = clock.monotonic()
        counts.running_since_ms = clock.now_ms()
        try:
            if job.changes_nothing:
                ran = await self._until_end(job.name, lambda: job.run(lambda: self._ending)) or Ran("stopped")
            else:
                ran = await job.run(lambda: self._ending)
        except Exception as error:
            ran = Ran("failed", f"{type(error).__name__}: {error}")
            log.warning("%s failed: %s", job.name, error, exc_info=not isinstance(error, CatenaError))
        finally:
            counts.running_since_ms = None
        counts.add(ran, clock.monotonic() - began, clock.now_ms())
        if ran.outcome == "good" and self._note is not None:
            await self._note(job.name, counts.last_seconds, job.every_ms)

    async def _pause(self, job: Job, part: float) -> None:
        await self._until_end(f"{job.name} waits", lambda: self._clock.sleep(job.every_ms / 1000 * part))

    async def _until_end(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """None: it was cut off, because the service ends."""
        if self._ending:
            return None
        task: asyncio.Task[T] = self._tasks.spawn(name, work())
        self._cut_at_end[task] = None
        try:
            return await task
        except asyncio.CancelledError:
            if not self.is_ending:
                raise
            return None
        finally:
            del self._cut_at_end[task]
