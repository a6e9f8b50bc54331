"""The meta store on SQLite.

One thread writes, one reads. Writes that come while a commit runs share the next one; a read never waits for a write,
and sees a snapshot that was begun after it was asked for, so both are linearizable. Between processes, writes take
turns (`write_lock`), and the file itself is the only truth.

An ephemeral record of an expired session is removed by a write, never by a reader's opinion: a read that finds an
expired session first has it removed, and then looks again. So two readers can't disagree, and nothing comes back.

Watches of this process wake as soon as its own writes are committed; `other_processes` wakes them for what the others
commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catena.errors import Conflict, OutcomeUnknown, StoreUnavailable
from catena.meta.base import (
    SCAN_LIMIT,
    Delete,
    Group,
    GroupResult,
    Op,
    Put,
    Record,
    Refused,
    Session,
    check_groups,
    check_put,
)
from catena.meta.sessions import KeptSession
from catena.meta.sqlite.batch_thread import BatchThread
from catena.meta.sqlite.commit import SWEEP, EndSession, OpenSession, RenewSession, Write, WriteRequest, cost
from catena.meta.sqlite.other_processes import OtherProcesses
from catena.meta.sqlite.threads import Query, Reader, SweepFirst, Writer
from catena.meta.watches import LocalWatch, Watches
from catena.runtime import Clock, Entropy, Tasks
from catena.types import ANY, Expect, Version

_GET = "SELECT key, value, version FROM records WHERE key = ?"
_SCAN = "SELECT key, value, version FROM records WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
_SCAN_KEYS = "SELECT key FROM records WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"


class SqliteMeta:
    """The file and its folder are made when they are not there. All its users must be on one host."""

    def __init__(self, path: Path, clock: Clock, entropy: Entropy, can_transact: bool = True) -> None:
        self._clock = clock
        self._entropy = entropy
        self._can_transact = can_transact
        self._watches = Watches()
        origin = entropy.hex_id()
        self._tasks = Tasks(f"meta store {path}")
        reader = Reader(path, clock)
        writer = Writer(path, clock, origin, self._watches.wake)
        self._reader = BatchThread[Query](
            f"reader of {path}", clock, self._tasks, reader.serve, reader.finish, cost=lambda _: 1
        )
        self._writer = BatchThread[WriteRequest](
            f"writer of {path}", clock, self._tasks, writer.serve, writer.finish, cost
        )
        self._others = OtherProcesses(path, clock, origin, self._watches, self._reader)

    @property
    def can_transact(self) -> bool:
        return self._can_transact

    async def get(self, key: str) -> Record | None:
        return next(iter(await self._records(_GET, key)), None)

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        check_put(key, value)
        version = await self._write_one(Put(key, value, expect), None if ephemeral is None else ephemeral.id)
        assert version is not None
        return version

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        await self._write_one(Delete(key, expect))

    async def ceiling(self, key: str, end: str) -> Record | None:
        return next(iter(await self._records(_SCAN, key, end, 1)), None)

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        return await self._records(_SCAN, start, end, limit)

    async def delete_range(self, start: str, end: str) -> None:
        while keys := [key for (key,) in await self._read(_SCAN_KEYS, start, end, SCAN_LIMIT)]:
            await self._writer.call(Write([[Delete(key)] for key in keys]))
            if len(keys) < SCAN_LIMIT:
                return

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        assert self._can_transact, "callers ask can_transact first"
        check_groups(groups)
        results: list[GroupResult] = await self._writer.call(Write(groups))
        return results

    def watch(self, prefix: str) -> LocalWatch:
        watch = self._watches.open(prefix)
        self._others.follow(self._tasks)
        return watch

    async def session(self, ttl_ms: int) -> KeptSession:
        started = self._clock.monotonic()
        session_id = self._entropy.hex_id()
        await self._writer.call(OpenSession(session_id, ttl_ms))
        session = KeptSession(session_id, ttl_ms, started, self._clock, self._renew, self._end)
        self._tasks.spawn(f"keep session {session_id} alive", session.keep_alive())
        return session

    async def close(self) -> None:
        self._watches.close()
        await self._tasks.close()
        await self._writer.close()
        await self._reader.close()

    async def _write_one(self, op: Op, session: str | None = None) -> Version | None:
        (result,) = await self._writer.call(Write([[op]], session))
        if isinstance(result, Refused):
            raise Conflict(op.key, result.found[0])
        (version,) = result.versions
        return version  # type: ignore[no-any-return]

    async def _records(self, sql: str, *parameters: Any) -> list[Record]:
        rows = await self._read(sql, *parameters)
        return [Record(key, value, Version(str(version))) for key, value, version in rows]

    async def _read(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        try:
            rows = await self._reader.call(Query(sql, parameters))
            if isinstance(rows, SweepFirst):
                await self._writer.call(SWEEP)
                # What expires from now on was still alive when this read began.
                rows = await self._reader.call(Query(sql, parameters, as_it_is=True))
        except OutcomeUnknown as error:
            raise StoreUnavailable(str(error)) from error
        return rows  # type: ignore[no-any-return]

    async def _renew(self, session_id: str, ttl_ms: int) -> bool:
        renewed: bool = await self._writer.call(RenewSession(session_id, ttl_ms))
        return renewed

    async def _end(self, session_id: str) -> None:
        await self._writer.call(EndSession(session_id))
