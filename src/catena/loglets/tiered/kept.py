"""Values that never change, by key: loaded once, however many ask for one, and kept as long as there is room.

What was not used for longest goes first; the newest one stays, whatever its size. An error is told to all who wait, and
is not kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from catena.errors import CatenaError, StoreUnavailable
from catena.runtime import Tasks, shielded

V = TypeVar("V")


class Sized(NamedTuple, Generic[V]):
    value: V
    size: int
    """What it takes in memory, in bytes."""


Load: TypeAlias = Callable[[], Awaitable[Sized[V]]]


class Kept(Generic[V]):
    def __init__(self, tasks: Tasks, max_bytes: int) -> None:
        self._tasks = tasks
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: OrderedDict[str, Sized[V]] = OrderedDict()
        self._coming: dict[str, asyncio.Future[V]] = {}

    async def get(self, key: str, load: Load[V]) -> V:
        if (found := self._values.get(key)) is not None:
            self._values.move_to_end(key)
            return found.value
        # Shielded: others may wait for the same.
        return await shielded(self._coming.get(key) or self._start(key, load))

    def _start(self, key: str, load: Load[V]) -> asyncio.Future[V]:
        if self._tasks.closed:
            raise StoreUnavailable("the node is shutting down")
        coming = self._coming[key] = asyncio.get_running_loop().create_future()
        task = self._tasks.spawn("load", self._load(key, load, coming))
        # Also a task that is cancelled before it has begun must leave nobody waiting.
        task.add_done_callback(lambda _: self._end(key, coming))
        return coming

    async def _load(self, key: str, load: Load[V], coming: asyncio.Future[V]) -> None:
        try:
            found = await load()
        except CatenaError as error:
            _fail(coming, error)
            return
        self._values[key] = found
        self._bytes += found.size
        while self._bytes > self._max_bytes and len(self._values) > 1:
            self._bytes -= self._values.popitem(last=False)[1].size
        coming.set_result(found.value)

    def _end(self, key: str, coming: asyncio.Future[V]) -> None:
        del self._coming[key]
        if not coming.done():
            _fail(coming, StoreUnavailable(f"reading {key} was interrupted"))


def _fail(coming: asyncio.Future[V], error: CatenaError) -> None:
    coming.set_exception(error)
    coming.exception()  # whoever asked may be gone
