"""What a store is asked to do: requests, bytes, errors and latencies by kind of operation, for metrics and the bill.

It belongs next to the store, inside of the retries, so that each try counts.
"""

from __future__ import annotations

import bisect
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from catena.errors import CatenaError
from catena.objects.base import Blob, ObjectInfo, ObjectStore, Range
from catena.runtime import Clock
from catena.types import ANY, Buffer, Buffers, ETag, Expect

LATENCY_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Upper bounds (inclusive) of the histogram's buckets; one more bucket holds what took longer."""

KINDS = ("put", "get", "range_get", "head", "list", "delete")
LIST_PAGE = 1_000


@dataclass(slots=True)
class OperationCounts:
    """Of one kind of operation, since the store was made."""

    requests: int = 0
    """As S3 bills them: one for each range of a range_get, one for each page of a list."""
    bytes: int = 0
    """Sent by puts, received by gets."""
    errors: dict[str, int] = field(default_factory=dict)
    """By the name of the error; a Conflict or a missing object counts here, too."""
    latency_ms_sum: float = 0.0
    latency_buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_MS) + 1))

    def copy(self) -> OperationCounts:
        return OperationCounts(
            self.requests, self.bytes, dict(self.errors), self.latency_ms_sum, list(self.latency_buckets)
        )


class CountedObjects:
    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counts = {kind: OperationCounts() for kind in KINDS}

    def snapshot(self) -> Mapping[str, OperationCounts]:
        """Copies of all counts, by the kinds in KINDS."""
        return {kind: counts.copy() for kind, counts in self._counts.items()}

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        with self._counting("put") as counts:
            etag = await self._store.put(key, data, expect)
            counts.bytes += sum(memoryview(buffer).nbytes for buffer in data)
            return etag

    async def get(self, key: str) -> Blob:
        with self._counting("get") as counts:
            blob = await self._store.get(key)
            counts.bytes += len(blob.data)
            return blob

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        with self._counting("range_get", requests=sum(1 for wanted in ranges if wanted.length)) as counts:
            parts = await self._store.get_ranges(key, ranges)
            counts.bytes += sum(wanted.length for wanted in ranges)
            return parts

    async def head(self, key: str) -> ObjectInfo:
        with self._counting("head"):
            return await self._store.head(key)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        infos = self._store.list(prefix, after)
        full = True
        while full:
            # Page by page, because the time that the caller takes between two objects is not the store's.
            with self._counting("list"):
                page = await _next_page(infos)
            for info in page:
                yield info
            full = len(page) == LIST_PAGE

    async def delete(self, keys: Sequence[str]) -> None:
        with self._counting("delete"):
            await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()

    @contextmanager
    def _counting(self, kind: str, requests: int = 1) -> Iterator[OperationCounts]:
        counts = self._counts[kind]
        counts.requests += requests
        started = self._clock.monotonic()
        try:
            yield counts
        except CatenaError as error:
            name = type(error).__name__
            counts.errors[name] = counts.errors.get(name, 0) + 1
            raise
        finally:
            elapsed_ms = (self._clock.monotonic() - started) * 1_000
            counts.latency_ms_sum += elapsed_ms
            counts.latency_buckets[bisect.bisect_left(LATENCY_BOUNDS_MS, elapsed_ms)] += 1


async def _next_page(infos: AsyncIterator[ObjectInfo]) -> Sequence[ObjectInfo]:
    page = []
    async for info in infos:
        page.append(info)
        if len(page) == LIST_PAGE:
            break
    return page
