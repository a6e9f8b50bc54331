"""The watches of one process, found by the key that changed.

Watches are filed by prefix, and a changed key is cut to each length that some prefix has: there are few such lengths,
so that a change costs a few dictionary lookups, however many thousand partitions are watched. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from catena.errors import StoreUnavailable


class LocalWatch:
    def __init__(self, watches: Watches, prefix: str) -> None:
        self._watches = watches
        self._prefix = prefix
        self._event = asyncio.Event()
        self._closed = False
        self._waiters = 0

    async def changed(self) -> None:
        self._waiters += 1
        try:
            await self._event.wait()
        finally:
            self._waiters -= 1
        if self._closed:
            raise StoreUnavailable(f"the watch on {self._prefix!r} was closed")
        self._event.clear()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._event.set()
            self._watches._forget(self._prefix, self)

    def _wake(self) -> None:
        self._event.set()


class Watches:
    def __init__(self) -> None:
        self._by_prefix: dict[str, dict[LocalWatch, None]] = {}
        self._lengths: dict[int, int] = {}

    def open(self, prefix: str) -> LocalWatch:
        watch = LocalWatch(self, prefix)
        if prefix not in self._by_prefix:
            self._by_prefix[prefix] = {}
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
        self._by_prefix[prefix][watch] = None
        return watch

    def __len__(self) -> int:
        """Of the prefixes that are watched."""
        return len(self._by_prefix)

    def is_watched(self, prefix: str) -> bool:
        return prefix in self._by_prefix

    def is_awaited(self, prefix: str) -> bool:
        """Whether somebody waits for a change just now."""
        return any(watch._waiters for watch in self._by_prefix.get(prefix, ()))

    def wake(self, keys: Iterable[str]) -> None:
        for key in keys:
            for length in self._lengths:
                for watch in self._by_prefix.get(key[:length], ()):
                    watch._wake()

    def wake_all(self) -> None:
        for watches in self._by_prefix.values():
            for watch in watches:
                watch._wake()

    def close(self) -> None:
        for watches in list(self._by_prefix.values()):
            for watch in list(watches):
                watch.close()

    def _forget(self, prefix: str, watch: LocalWatch) -> None:
        watches = self._by_prefix[prefix]
        del watches[watch]
        if not watches:
            del self._by_prefix[prefix]
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]
