"""Requests that wait for more to come: for news of their logs, not for a clock.

Who finds too little waits until one of its logs may have something new, and looks again. When its time is over it looks
once more in the store, so that what other nodes acked is never denied: who is answered with nothing at all has asked
the store after it came. Where some logs have something the others are not asked for: of those nothing is known to be
new. Fetches of Kafka's clients and of HTTP's wait in the same way and share what watches the logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from catena.broker.tails import Tails
from catena.runtime import Clock, Tasks
from catena.types import Offset
from catena.virtual_log.log import VirtualLog

LAST_LOOKS_S = 0.02

News: TypeAlias = Mapping[VirtualLog, None]
"""The logs that may have something new. Of others nothing has been heard since they were looked at."""
Look: TypeAlias = Callable[[News | None], Awaitable[bool]]
"""Whether what was found is enough. None: this is the last look, which asks the store and not what is remembered."""


class _Waiting:
    def __init__(self) -> None:
        self._logs: dict[VirtualLog, None] = {}
        self._came = asyncio.Event()

    def tell(self, of: VirtualLog) -> None:
        self._logs[of] = None
        self._came.set()

    def end(self, _ended: object = None) -> None:
        self._came.set()

    def take(self) -> News:
        self._came.clear()
        logs, self._logs = self._logs, {}
        return logs

    async def wait(self, max_wait_s: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, max_wait_s)):
                await self._came.wait()
        except TimeoutError:
            pass


class LongPolls:
    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tails = Tails(clock, tasks)
        self._waiting: dict[_Waiting, None] = {}
        self._ending = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def end(self) -> None:
        """The node ends: nobody waits any more for what others will write."""
        self._ending = True
        for waiting in self._waiting:
            waiting.end()

    def has_nothing(self, of: VirtualLog, offset: Offset, news: News | None) -> bool:
        """Whether a look need not ask the store for this log: it ends at this offset, and is followed.

        One that is not followed has to be asked for: what was seen of it may be old, and who finds enough in other
        logs each time never comes to wait for this one.
        """
        return news is not None and of not in news and offset == of.seen_tail and self._tails.follow(of)

    async def look_until(
        self,
        logs: Sequence[VirtualLog],
        max_wait_s: float,
        look: Look,
        ended: asyncio.Future[None] | None = None,
    ) -> None:
        """Look at once, and again at news of these logs, until it is enough or the time is over.

        `ended`: done once nobody may be there any more who waits; then the time is over.
        """
        if max_wait_s <= 0:
            await look(None)
            return
        deadline = self._clock.monotonic() + max_wait_s
        # Many who wait for nothing end together, so that their last looks are one.
        deadline += -deadline % LAST_LOOKS_S
        waiting = _Waiting()
        subscribed = False
        try:
            while True:
                has_ended = self._ending or (ended is not None and ended.done())
                is_last = has_ended or self._clock.monotonic() >= deadline
                if await look(None if is_last else waiting.take()) or is_last:
                    return
                if not subscribed:
                    subscribed = True
                    self._waiting[waiting] = None
                    if ended is not None:
                        ended.add_done_callback(waiting.end)
                    for log in logs:
                        self._tails.subscribe(log, waiting.tell)
                    continue  # what came in before the subscription is not told
                await waiting.wait(deadline - self._clock.monotonic())
        finally:
            if subscribed:
                del self._waiting[waiting]
                if ended is not None:
                    ended.remove_done_callback(waiting.end)
                for log in logs:
                    self._tails.unsubscribe(log, waiting.tell)
