"""Finds out what others have changed under the prefixes that somebody waits on.

Object stores call nobody back, so each watched prefix is listed now and then, and the etags compared: 50 ms after a
change, then more and more rarely, down to once a second. A prefix is only listed while somebody waits. Listings in
flight are bounded for all prefixes together. A prefix with too many records to compare wakes at every look.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from catena.errors import CatenaError
from catena.meta.watches import Watches
from catena.objects.base import ObjectInfo
from catena.runtime import Clock, Tasks

PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 1.0
SLOWDOWN = 1.5
LISTINGS_MAX = 8
COMPARED_MAX = 1000


class Polling:
    def __init__(
        self, clock: Clock, tasks: Tasks, watches: Watches, list_prefix: Callable[[str], AsyncIterator[ObjectInfo]]
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._watches = watches
        self._list = list_prefix
        self._polled: dict[str, None] = {}
        self._slots = asyncio.Semaphore(LISTINGS_MAX)

    def ensure(self, prefix: str) -> None:
        """Poll this prefix until nobody watches it any more."""
        if prefix not in self._polled:
            self._polled[prefix] = None
            self._tasks.spawn(f"poll {prefix}", self._poll(prefix))

    async def _poll(self, prefix: str) -> None:
        pause = PAUSE_MIN_S
        seen: list[tuple[str, str]] | None = None
        while self._watches.is_watched(prefix):
            if self._watches.is_awaited(prefix):
                found = await self._look(prefix)
                if found is None or found != seen:
                    self._watches.wake((prefix,))
                    pause = PAUSE_MIN_S
                seen = found
            await self._clock.sleep(pause)
            pause = min(pause * SLOWDOWN, PAUSE_MAX_S)
        del self._polled[prefix]

    async def _look(self, prefix: str) -> list[tuple[str, str]] | None:
        """What there is; None if that can't be told, and whoever waits should look for itself."""
        found: list[tuple[str, str]] = []
        try:
            async with self._slots:
                async for info in self._list(prefix):
                    found.append((info.key, info.etag))
                    if len(found) > COMPARED_MAX:
                        return None
        except CatenaError:
            return None
        return found
