"""What a meta store is asked to do: calls, bytes of values, errors and latencies by kind of operation.

It belongs next to the store, so that each try counts. A group that `transact` refused is no failure of the call; it is
counted as `Refused`. A watch and what keeps a session alive are the backend's own affair, and not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catena.counting import OperationCounts
from catena.meta.base import SCAN_LIMIT, Group, GroupResult, MetaStore, Put, Record, Refused, Session, Watch
from catena.runtime import Clock
from catena.types import ANY, Expect, Version

KINDS = ("get", "put", "delete", "ceiling", "scan", "delete_range", "transact", "session")


class CountedMeta:
    def __init__(self, store: MetaStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._counts = {kind: OperationCounts() for kind in KINDS}

    def snapshot(self) -> Mapping[str, OperationCounts]:
        """Copies of all counts, by the kinds in KINDS."""
        return {kind: counts.copy() for kind, counts in self._counts.items()}

    @property
    def can_transact(self) -> bool:
        return self.store.can_transact

    async def get(self, key: str) -> Record | None:
        with self._counts["get"].timing(self._clock) as counts:
            record = await self.store.get(key)
            counts.bytes += 0 if record is None else len(record.value)
            return record

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        with self._counts["put"].timing(self._clock) as counts:
            counts.bytes += len(value)
            return await self.store.put(key, value, expect, ephemeral)

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        with self._counts["delete"].timing(self._clock):
            await self.store.delete(key, expect)

    async def ceiling(self, key: str, end: str) -> Record | None:
        with self._counts["ceiling"].timing(self._clock) as counts:
            record = await self.store.ceiling(key, end)
            counts.bytes += 0 if record is None else len(record.value)
            return record

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        with self._counts["scan"].timing(self._clock) as counts:
            records = await self.store.scan(start, end, limit)
            counts.bytes += sum(len(record.value) for record in records)
            return records

    async def delete_range(self, start: str, end: str) -> None:
        with self._counts["delete_range"].timing(self._clock):
            await self.store.delete_range(start, end)

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        with self._counts["transact"].timing(self._clock) as counts:
            counts.bytes += sum(len(op.value) for group in groups for op in group if isinstance(op, Put))
            results = await self.store.transact(groups)
            refused = sum(isinstance(result, Refused) for result in results)
            if refused:
                counts.failed("Refused", refused)
            return results

    def watch(self, prefix: str) -> Watch:
        return self.store.watch(prefix)

    async def session(self, ttl_ms: int) -> Session:
        with self._counts["session"].timing(self._clock):
            return await self.store.session(ttl_ms)

    async def close(self) -> None:
        await self.store.close()
