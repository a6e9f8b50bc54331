"""Objects in memory: for tests, for the simulator, and for logs that need not outlive their process."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from catena.errors import Conflict, Corrupt, ObjectMissing
from catena.objects.base import Blob, ObjectInfo, Range, check_key
from catena.runtime import Clock
from catena.types import ABSENT, ANY, Buffer, Buffers, ETag, Expect


class _Stored(NamedTuple):
    data: bytes
    etag: ETag
    modified_ms: int


class MemoryObjects:
    """A dict of objects and the sorted list of its keys."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, _Stored] = {}
        self._keys: list[str] = []
        self._etags = itertools.count(1)

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        check_key(key)
        found = self._objects.get(key)
        if expect is not ANY and (None if expect is ABSENT else expect) != (found and found.etag):
            raise Conflict(key)
        if found is None:
            self._insert_key(key)
        etag = ETag(str(next(self._etags)))
        self._objects[key] = _Stored(b"".join(data), etag, self._clock.now_ms())
        return etag

    async def get(self, key: str) -> Blob:
        stored = self._find(key)
        return Blob(stored.data, stored.etag)

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        if not any(length for _, length in ranges):
            return [b"" for _ in ranges]
        data = memoryview(self._find(key).data)
        for start, length in ranges:
            if length and start + length > len(data):
                raise Corrupt(f"object {key} has {len(data)} bytes; bytes {start} to {start + length} were asked for")
        return [data[start : start + length] for start, length in ranges]

    async def head(self, key: str) -> ObjectInfo:
        stored = self._find(key)
        return ObjectInfo(key, len(stored.data), stored.etag, stored.modified_ms)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        # The caller may write between two steps, so every step finds its place again.
        at = max(bisect.bisect_left(self._keys, prefix), bisect.bisect_right(self._keys, after))
        while at < len(self._keys) and (key := self._keys[at]).startswith(prefix):
            stored = self._objects[key]
            yield ObjectInfo(key, len(stored.data), stored.etag, stored.modified_ms)
            at = bisect.bisect_right(self._keys, key)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect.bisect_left(self._keys, key)]

    async def close(self) -> None:
        """Nothing to give back."""

    def _find(self, key: str) -> _Stored:
        check_key(key)
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectMissing(key) from None

    def _insert_key(self, key: str) -> None:
        below = bisect.bisect_left(self._keys, key + "/")
        if below < len(self._keys) and self._keys[below].startswith(key + "/"):
            raise ValueError(f"{key!r} cannot be an object's key, because {self._keys[below]!r} is one")
        for end in (at for at, char in enumerate(key) if char == "/"):
            if key[:end] in self._objects:
                raise ValueError(f"{key!r} cannot be an object's key, because {key[:end]!r} is one")
        bisect.insort(self._keys, key)
