"""Another try for what may be tried again, and only for that.

| raised | by | tried again |
|---|---|---|
| StoreUnavailable | anything | yes: nothing was applied |
| OutcomeUnknown | a delete, or a put with ANY | yes: done twice is done once |
| OutcomeUnknown | a put with a condition | no: a second try may meet the object of the first and conflict with it |
| all else | anything | no: it is an answer |

Pauses grow exponentially and are jittered, so that clients that failed together do not come back together. Tries are
bounded in number and by a deadline, after which no new one starts; how long one try takes is bounded by the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from catena.errors import CatenaError, OutcomeUnknown, StoreUnavailable
from catena.objects.base import Blob, ObjectInfo, ObjectStore, Range
from catena.runtime import Clock, Entropy
from catena.types import ANY, Buffer, Buffers, ETag, Expect

T = TypeVar("T")

_NOTHING_APPLIED: tuple[type[CatenaError], ...] = (StoreUnavailable,)
_REPEATABLE: tuple[type[CatenaError], ...] = (StoreUnavailable, OutcomeUnknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    max_tries: int = 8
    first_pause_ms: int = 50
    longest_pause_ms: int = 5_000
    deadline_ms: int = 30_000


class RetryingObjects:
    def __init__(
        self, store: ObjectStore, clock: Clock, entropy: Entropy, settings: RetrySettings | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._settings = settings or RetrySettings()

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        retriable = _REPEATABLE if expect is ANY else _NOTHING_APPLIED
        return await self._retry(lambda: self._store.put(key, data, expect), retriable)

    async def get(self, key: str) -> Blob:
        return await self._retry(lambda: self._store.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        return await self._retry(lambda: self._store.get_ranges(key, ranges))

    async def head(self, key: str) -> ObjectInfo:
        return await self._retry(lambda: self._store.head(key))

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        tries = _Tries(self._clock, self._entropy, self._settings)
        while True:
            try:
                async for info in self._store.list(prefix, after):
                    yield info
                    after = info.key
                    tries = _Tries(self._clock, self._entropy, self._settings)
                return
            except StoreUnavailable as error:
                await tries.pause_or_raise(error)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._retry(lambda: self._store.delete(keys), _REPEATABLE)

    async def close(self) -> None:
        await self._store.close()

    async def _retry(
        self, call: Callable[[], Awaitable[T]], retriable: tuple[type[CatenaError], ...] = _NOTHING_APPLIED
    ) -> T:
        tries = _Tries(self._clock, self._entropy, self._settings)
        while True:
            try:
                return await call()
            except retriable as error:
                await tries.pause_or_raise(error)


class _Tries:
    """How often and how long one thing may still be tried."""

    def __init__(self, clock: Clock, entropy: Entropy, settings: RetrySettings) -> None:
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._deadline = clock.monotonic() + settings.deadline_ms / 1_000
        self._failed = 0

    async def pause_or_raise(self, error: CatenaError) -> None:
        self._failed += 1
        longest_ms = min(self._settings.first_pause_ms << (self._failed - 1), self._settings.longest_pause_ms)
        pause = longest_ms / 1_000 * (0.5 + self._entropy.jitter() / 2)
        if self._failed >= self._settings.max_tries or self._clock.monotonic() + pause >= self._deadline:
            raise error
        await self._clock.sleep(pause)
