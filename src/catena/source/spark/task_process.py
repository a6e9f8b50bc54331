"""Inside of a Python worker of Spark: an event loop, and the stores that its tasks have read, kept for the next ones.

Spark ends its workers without a word; where one ends by itself its stores are closed.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from catena.loglets.base import Extent
from catena.objects.base import ObjectStore
from catena.objects.linked import LinkedObjects
from catena.objects.retrying import RetryingObjects
from catena.runtime import Clock, Entropy, SystemClock, SystemEntropy
from catena.source.reading import fetch_extents, read_split
from catena.source.splitting import Split
from catena.store_spec import StoreSpec
from catena.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

STORES_MAX = 4


class Links(msgspec.Struct, frozen=True):
    """Of the objects that one task reads, by key."""

    links: tuple[tuple[str, str], ...]

    @asynccontextmanager
    async def __call__(self, clock: Clock, entropy: Entropy) -> AsyncIterator[tuple[ObjectStore, None]]:
        objects = RetryingObjects(LinkedObjects(dict(self.links)), clock, entropy)
        try:
            yield objects, None
        finally:
            await objects.close()


class Task(NamedTuple):
    store: StoreSpec | Links
    split: Split


def read_here(task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    process = _this_process()
    return read_split(task.split, columns, functools.partial(process.fetch, task.store))


class TaskProcess:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stores: dict[StoreSpec | Links, tuple[AsyncExitStack, ObjectStore]] = {}

    def fetch(self, store: StoreSpec | Links, extents: Sequence[Extent]) -> Sequence[Buffer]:
        return self._runner.run(self._fetch(store, extents))

    def close(self) -> None:
        for opened, _ in self._stores.values():
            self._runner.run(opened.aclose())
        self._stores.clear()
        self._runner.close()

    async def _fetch(self, store: StoreSpec | Links, extents: Sequence[Extent]) -> Sequence[Buffer]:
        if store not in self._stores:
            while len(self._stores) >= STORES_MAX:
                opened, _ = self._stores.pop(next(iter(self._stores)))
                await opened.aclose()
            opened = AsyncExitStack()
            objects, _ = await opened.enter_async_context(store(SystemClock(), SystemEntropy()))
            self._stores[store] = opened, objects
        return await fetch_extents(self._stores[store][1], extents)


@functools.cache
def _this_process() -> TaskProcess:
    process = TaskProcess()
    atexit.register(process.close)
    return process
