"""Inside of a Python worker of Spark: an event loop, and the stores that its tasks have read, kept for the next ones.

The loop has a thread of its own, so that downloads go on while Spark takes what was decoded. Spark ends its workers
without a word; where one ends by itself its stores are closed.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from catena.loglets.base import Extent
from catena.objects.base import ObjectStore
from catena.objects.linked import LinkedObjects
from catena.objects.retrying import RetryingObjects
from catena.runtime import Clock, Entropy, SystemClock, SystemEntropy
from catena.source.reading import fetch_extents, leave_out, read_ahead
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


def read_here(task: Task, columns: Sequence[str], is_strict: bool) -> Iterator[pa.RecordBatch]:
    """A batch that can't be decoded is an error, or is left out."""
    process = _this_process()
    aside = None if is_strict else leave_out
    return read_ahead(task.split, columns, functools.partial(process.begin, task.store), aside)


class TaskProcess:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stores: dict[StoreSpec | Links, tuple[AsyncExitStack, ObjectStore]] = {}
        self._opening = asyncio.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="catena downloads", daemon=True)
        self._thread.start()

    def begin(self, store: StoreSpec | Links, extents: Sequence[Extent]) -> Future[Sequence[Buffer]]:
        return asyncio.run_coroutine_threadsafe(self._fetch(store, extents), self._loop)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        abandoned = asyncio.all_tasks() - {asyncio.current_task()}
        for task in abandoned:
            task.cancel()
        await asyncio.gather(*abandoned, return_exceptions=True)
        while self._stores:
            await self._close_first()

    async def _fetch(self, store: StoreSpec | Links, extents: Sequence[Extent]) -> Sequence[Buffer]:
        return await fetch_extents(await self._open(store), extents)

    async def _open(self, store: StoreSpec | Links) -> ObjectStore:
        async with self._opening:  # several downloads begin at once
            if store not in self._stores:
                while len(self._stores) >= STORES_MAX:
                    await self._close_first()
                opened = AsyncExitStack()
                objects, _ = await opened.enter_async_context(store(SystemClock(), SystemEntropy()))
                self._stores[store] = opened, objects
            return self._stores[store][1]

    async def _close_first(self) -> None:
        opened, _ = self._stores.pop(next(iter(self._stores)))
        await opened.aclose()


@functools.cache
def _this_process() -> TaskProcess:
    process = TaskProcess()
    atexit.register(process.close)
    return process
