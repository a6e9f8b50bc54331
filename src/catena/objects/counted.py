"""What a store is asked to do: requests, bytes, errors and latencies by kind of operation, for metrics and the bill.

It belongs next to the store, inside of the retries, so that each try counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from catena.counting import OperationCounts
from catena.objects.base import Blob, ObjectInfo, ObjectStore, Range
from catena.runtime import Clock
from catena.types import ANY, Buffer, Buffers, ETag, Expect

KINDS = ("put", "get", "range_get", "head", "list", "delete")
LIST_PAGE = 1_000


class CountedObjects:
    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counts = {kind: OperationCounts() for kind in KINDS}

    def snapshot(self) -> Mapping[str, OperationCounts]:
        """Copies of all counts, by the kinds in KINDS."""
        return {kind: counts.copy() for kind, counts in self._counts.items()}

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        with self._counts["put"].timing(self._clock) as counts:
            etag = await self._store.put(key, data, expect)
            counts.bytes += sum(memoryview(buffer).nbytes for buffer in data)
            return etag

    async def get(self, key: str) -> Blob:
        with self._counts["get"].timing(self._clock) as counts:
            blob = await self._store.get(key)
            counts.bytes += len(blob.data)
            return blob

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        requests = sum(1 for wanted in ranges if wanted.length)
        with self._counts["range_get"].timing(self._clock, requests) as counts:
            parts = await self._store.get_ranges(key, ranges)
            counts.bytes += sum(wanted.length for wanted in ranges)
            return parts

    async def head(self, key: str) -> ObjectInfo:
        with self._counts["head"].timing(self._clock):
            return await self._store.head(key)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        infos = self._store.list(prefix, after)
        full = True
        while full:
            # Page by page, because the time that the caller takes between two objects is not the store's.
            with self._counts["list"].timing(self._clock):
                page = await _next_page(infos)
            for info in page:
                yield info
            full = len(page) == LIST_PAGE

    async def delete(self, keys: Sequence[str]) -> None:
        with self._counts["delete"].timing(self._clock):
            await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()


async def _next_page(infos: AsyncIterator[ObjectInfo]) -> Sequence[ObjectInfo]:
    page = []
    async for info in infos:
        page.append(info)
        if len(page) == LIST_PAGE:
            break
    return page
