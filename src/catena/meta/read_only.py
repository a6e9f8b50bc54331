"""A meta store that can be made read-only: the one door through which a node writes.

It counts the writes that have gone through, and hands everything on until `end_writes`; from then on a write raises
MetaBehind and nothing reaches the store. What goes on:

- reads, and a `transact` of checks alone, which is one;
- the records of living nodes (`llog/nodes/`) and sessions: they say who can be reached, nothing of the log, and are
  gone with their process. Without them a node that only reads could not be found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from catena.errors import MetaBehind
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, Check, Group, GroupResult, MetaStore, Record, Session, Watch
from catena.types import ANY, Expect, Version

T = TypeVar("T")


class GuardedMeta:
    """The store belongs to the caller, who closes it."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._refusal: str | None = None
        self.writes = 0
        """That have ended, well or not: what is counted was applied before, if at all, or had no answer."""

    def end_writes(self, reason: str) -> None:
        """For as long as this object lives."""
        self._refusal = reason

    def require_writes(self) -> None:
        """Raise MetaBehind if they have ended."""
        if self._refusal is not None:
            raise MetaBehind(self._refusal)

    @property
    def can_transact(self) -> bool:
        return self._store.can_transact

    async def get(self, key: str) -> Record | None:
        return await self._store.get(key)

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        if key.startswith(keys.NODES):
            return await self._store.put(key, value, expect, ephemeral)
        self.require_writes()
        return await self._counted(self._store.put(key, value, expect, ephemeral))

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        if key.startswith(keys.NODES):
            return await self._store.delete(key, expect)
        self.require_writes()
        return await self._counted(self._store.delete(key, expect))

    async def ceiling(self, key: str, end: str) -> Record | None:
        return await self._store.ceiling(key, end)

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        return await self._store.scan(start, end, limit)

    async def delete_range(self, start: str, end: str) -> None:
        self.require_writes()
        await self._counted(self._store.delete_range(start, end))

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        if all(isinstance(op, Check) for group in groups for op in group):
            return await self._store.transact(groups)
        self.require_writes()
        return await self._counted(self._store.transact(groups))

    def watch(self, prefix: str) -> Watch:
        return self._store.watch(prefix)

    async def session(self, ttl_ms: int) -> Session:
        return await self._store.session(ttl_ms)

    async def close(self) -> None:
        await self._store.close()

    async def _counted(self, write: Awaitable[T]) -> T:
        try:
            return await write
        finally:
            self.writes += 1
