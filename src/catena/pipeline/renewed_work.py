"""Work that survives what does it: a Spark session that has ended is opened anew.

The contract of `Work` says how its end is told: `run` raises RetryLater. A table raises that for other reasons, too,
and so a task is tried after it, to know.

Whoever was at work then gets the error, and does its job again later. The new session is opened by the next one that
asks for work, or asks whether it is `ready`; others wait for it. It is tried a few times, with growing pauses; then
that one gets an error, and whoever comes next tries again. Whoever is told to end is not kept by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import msgspec

from catena.errors import CatenaError, RetryLater
from catena.pipeline.work import Executor, Table, TaskFailed, Usage, Work
from catena.runtime import Clock

log = logging.getLogger(__name__)

TRIES = 5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
LOOK_S = 0.2
"""How soon it is noticed, between two tries, that there is no need any more."""
EARLIER = Executor("earlier sessions", 0)
"""All that was done by sessions that have ended."""


class Renewals(msgspec.Struct):
    restarts: int = 0
    failures: int = 0
    """Tries to open a session again that were in vain."""
    last_error: str = ""
    """Why a session has ended, or could not be opened again."""


class RenewedWork:
    def __init__(self, open_work: Callable[[], AbstractAsyncContextManager[Work]], clock: Clock) -> None:
        self._open_work = open_work
        self._clock = clock
        self._opened = AsyncExitStack()
        self._work: Work | None = None
        """None: it has ended."""
        self._earlier = Usage()
        self._renewing = asyncio.Lock()
        self._is_ending = False
        self.renewals = Renewals()

    async def open(self) -> None:
        opened = AsyncExitStack()
        self._work = await opened.enter_async_context(self._open_work())
        self._opened = opened

    async def close(self) -> None:
        if self._work is not None:
            await self._opened.aclose()
        else:
            await self._clear_away()

    def end(self) -> None:
        """From now on no session is opened anew; what is at work goes on."""
        self._is_ending = True

    async def ready(self) -> None:
        """There is a session, as far as is known. Raises RetryLater if there can't be one."""
        await self._current()

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        work = await self._current()
        try:
            return await work.run(task, plans, done)
        except RetryLater as error:
            self._has_ended(work, error)
            raise
        except Exception as error:
            await self._look_after(error, work)
            raise

    @asynccontextmanager
    async def table(self, task: str, plans: Sequence[bytes]) -> AsyncIterator[Table]:
        work = await self._current()
        try:
            async with work.table(task, plans) as table:
                yield table
        except Exception as error:
            await self._look_after(error, work)
            raise

    @property
    def usage(self) -> Mapping[Executor, Usage]:
        usage = dict(self._work.usage) if self._work is not None else {}
        return {EARLIER: self._earlier, **usage} if self._earlier.tasks else usage

    async def _current(self) -> Work:
        async with self._renewing:
            return self._work or await self._renew()

    async def _look_after(self, error: Exception, work: Work) -> None:
        """Is it still there? The end of a JVM is told in many ways, and not all of them are errors of ours."""
        is_known = isinstance(error, CatenaError) and not isinstance(error, RetryLater)
        if is_known or self._work is not work:
            return
        try:
            await work.run("probe", [b""], lambda *_: None)
        except RetryLater as ended:
            self._has_ended(work, ended)
        except Exception as other:
            log.warning("whether what does the tasks is still there can't be told: %s", other)

    def _has_ended(self, work: Work, error: RetryLater) -> None:
        if self._work is work:
            self._earlier = sum(work.usage.values(), self._earlier)
            self._work = None
            self._note(error)

    async def _renew(self) -> Work:
        await self._clear_away()
        pause_s = FIRST_PAUSE_S
        for attempt in range(TRIES):
            if attempt:
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if self._is_ending:
                raise RetryLater("what does the tasks has ended, and is not started again: the service ends")
            try:
                await self.open()
            except CatenaError as error:
                self.renewals.failures += 1
                self._note(error)
                continue
            assert self._work is not None
            self.renewals.restarts += 1
            return self._work
        raise RetryLater(f"what does the tasks has ended, and can't be started again: {self.renewals.last_error}")

    async def _pause(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self._is_ending and (left := until - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, LOOK_S))

    async def _clear_away(self) -> None:
        """PySpark has one driver in a process, so the old one has to be gone before there can be another."""
        ended, self._opened = self._opened, AsyncExitStack()
        try:
            await ended.aclose()
        except Exception as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        self.renewals.last_error = f"{type(error).__name__}: {error}"
        log.warning("%s", self.renewals.last_error)


@asynccontextmanager
async def renewed(
    open_work: Callable[[], AbstractAsyncContextManager[Work]], clock: Clock
) -> AsyncIterator[RenewedWork]:
    """Opened at once, so that who can't have any work at all gets to know."""
    work = RenewedWork(open_work, clock)
    await work.open()
    try:
        yield work
    finally:
        await work.close()
