"""An object store for a node that may have to stop writing: every put and delete asks first.

A node whose meta store takes no writes would upload blobs that nothing can ever refer to, one for each append that it
refuses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from catena.objects.base import Blob, ObjectInfo, ObjectStore, Range
from catena.types import ANY, Buffer, Buffers, ETag, Expect


class GuardedObjects:
    """The store belongs to the caller, who closes it."""

    def __init__(self, store: ObjectStore, require_writes: Callable[[], None]) -> None:
        """`require_writes` raises if nothing is to be written."""
        self._store = store
        self._require_writes = require_writes

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        self._require_writes()
        return await self._store.put(key, data, expect)

    async def get(self, key: str) -> Blob:
        return await self._store.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        return await self._store.get_ranges(key, ranges)

    async def head(self, key: str) -> ObjectInfo:
        return await self._store.head(key)

    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._store.list(prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        self._require_writes()
        await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()
