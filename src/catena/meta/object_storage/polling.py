"""Finds out what others have changed where somebody waits.

Object stores call nobody back, so they are asked now and then, and etags compared: 50 ms after a change, then more and
more rarely. A watch on a single key is somebody at the tail of a log, who is told within a second; a request for one
object is cheap. A watch on all keys below a prefix needs a listing, which costs twelve times as much, all the time and
on each node; so where nothing changes it comes down to one in half a minute. Who needs to know sooner looks by itself.

Nothing is asked while nobody waits. What is in flight is bounded for all watches together. A store that does not answer
wakes whoever waits: they look for themselves, and get the error.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TypeAlias

from catena.errors import CatenaError, ObjectMissing
from catena.meta.watches import Watches
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Tasks

PAUSE_MIN_S = 0.05
KEY_PAUSE_MAX_S = 1.0
PREFIX_PAUSE_MAX_S = 30.0
SLOWDOWN = 1.5
LOOKS_MAX = 8

_Seen: TypeAlias = str | int | None
"""The etag of a key ("": absent), or what stands for all etags below a prefix; None: it can't be told."""


class Polling:
    def __init__(self, clock: Clock, tasks: Tasks, watches: Watches, objects: ObjectStore, root: str) -> None:
        """Keys are those of objects, without `root`."""
        self._clock = clock
        self._tasks = tasks
        self._watches = watches
        self._objects = objects
        self._root = root
        self._pauses: dict[str, float] = {}
        """From one look to the next, of all that are polled."""
        self._slots = asyncio.Semaphore(LOOKS_MAX)

    def ensure(self, prefix: str) -> None:
        """Poll this prefix until nobody watches it any more; from now on often, since somebody has just come."""
        is_polled = prefix in self._pauses
        self._pauses[prefix] = PAUSE_MIN_S
        if not is_polled:
            self._tasks.spawn(f"poll {prefix}", self._poll(prefix))

    async def _poll(self, prefix: str) -> None:
        pause_max = PREFIX_PAUSE_MAX_S if prefix.endswith("/") else KEY_PAUSE_MAX_S
        seen: _Seen = None
        looked = float("-inf")
        while self._watches.is_watched(prefix):
            is_due = self._clock.monotonic() - looked >= self._pauses[prefix]
            if is_due and self._watches.is_awaited(prefix):
                looked = self._clock.monotonic()
                found = await self._look(prefix)
                if found is None or found != seen:
                    self._watches.wake((prefix,))
                if found != seen:
                    self._pauses[prefix] = PAUSE_MIN_S
                seen = found
            if is_due:
                self._pauses[prefix] = min(self._pauses[prefix] * SLOWDOWN, pause_max)
            # In short naps: who comes meanwhile is not to wait for the end of a long pause.
            await self._clock.sleep(min(self._pauses[prefix], KEY_PAUSE_MAX_S))
        del self._pauses[prefix]

    async def _look(self, prefix: str) -> _Seen:
        try:
            async with self._slots:
                if prefix.endswith("/"):
                    return await self._list(self._root + prefix)
                return (await self._objects.head(self._root + prefix)).etag
        except ObjectMissing:
            return ""
        except CatenaError:
            return None

    async def _list(self, prefix: str) -> int:
        listed = 0
        async for info in self._objects.list(prefix):
            listed = zlib.crc32(f"{info.key} {info.etag} ".encode(), listed)
        return listed
