"""The meta store on PostgreSQL.

Every write is one call of the function `transact` (in schema.sql), so that any number of groups costs one round trip.
Reads are plain statements. Sessions expire by the server's clock, which all share; a session is gone once a sweep has
deleted it and its records, and not before. Whoever meets a record of an expired session, in a read or in a write,
has it swept first: so nothing is absent for one and there for another, and nothing comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from catena.errors import Conflict, Contended, OutcomeUnknown, RetryLater, SessionExpired
from catena.meta.base import (
    SCAN_LIMIT,
    Check,
    Committed,
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
from catena.meta.postgres.database import Database
from catena.meta.postgres.errors import SessionGone, SweepFirst
from catena.meta.postgres.signals import Signals
from catena.meta.sessions import KeptSession
from catena.meta.watches import LocalWatch, Watches
from catena.runtime import Clock, Entropy, Tasks
from catena.types import ABSENT, ANY, Expect, Version

DEFAULT_SCHEMA = "catena"
SWEEPS_MAX = 5

_RECORD = """SELECT key, value, version, EXISTS (
    SELECT FROM sessions WHERE sessions.id = records.session AND expires_at <= clock_timestamp()
) AS expired FROM records"""
_GET = f"{_RECORD} WHERE key = $1"
_SCAN = f"{_RECORD} WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3"
_TRANSACT = "SELECT refused, version, value FROM transact($1, $2, $3, $4, $5, $6)"
_DELETE_RANGE = """DELETE FROM records WHERE key = ANY (ARRAY(
    SELECT key FROM records WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3 FOR UPDATE
)) RETURNING key"""
_SWEEP = "SELECT sweep()"
_OPEN_SESSION = "INSERT INTO sessions VALUES ($1, clock_timestamp() + $2 * interval '1 millisecond')"
_RENEW_SESSION = """UPDATE sessions SET expires_at = clock_timestamp() + $2 * interval '1 millisecond'
    WHERE id = $1 AND expires_at > clock_timestamp() RETURNING true"""
_END_SESSION = "SELECT end_session($1)"

_KINDS: dict[type[Op], int] = {Check: 0, Put: 1, Delete: 2}
_EXPECT_ABSENT = 0
_EXPECT_ANY = -1
_EXPECT_NEVER = 1 << 62  # a version that is not ours: no record has it


class PostgresMeta:
    """Several clusters may share a database, each with a schema of its own, which is made on first use."""

    def __init__(
        self, dsn: str, clock: Clock, entropy: Entropy, schema: str = DEFAULT_SCHEMA, can_transact: bool = True
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._can_transact = can_transact
        self._tasks = Tasks(f"meta store on PostgreSQL, {schema}")
        self._watches = Watches()
        self._database = Database(dsn, schema, clock, entropy)
        self._signals = Signals(self._database, f"{schema}_changes", clock, self._tasks, self._watches)

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
        return next(iter(await self.scan(key, end, limit=1)), None)

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        return await self._records(_SCAN, _bound(start), _bound(end), limit)

    async def delete_range(self, start: str, end: str) -> None:
        self._signals.ensure_running()
        while rows := await self._database.write(_DELETE_RANGE, _bound(start), _bound(end), SCAN_LIMIT):
            self._signals.announce(key for (key,) in rows)

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        assert self._can_transact, "callers ask can_transact first"
        check_groups(groups)
        return await self._write(groups)

    def watch(self, prefix: str) -> LocalWatch:
        self._signals.ensure_running()
        return self._watches.open(prefix)

    async def session(self, ttl_ms: int) -> KeptSession:
        self._signals.ensure_running()
        started = self._clock.monotonic()
        session_id = self._entropy.hex_id()
        await self._database.write(_OPEN_SESSION, session_id, ttl_ms)
        session = KeptSession(session_id, ttl_ms, started, self._clock, self._renew, self._end)
        self._tasks.spawn(f"keep session {session_id} alive", session.keep_alive())
        return session

    async def close(self) -> None:
        self._watches.close()
        await self._tasks.close()
        await self._database.close()

    async def _write_one(self, op: Op, session: str | None = None) -> Version | None:
        (result,) = await self._write([[op]], session)
        if isinstance(result, Refused):
            raise Conflict(op.key, result.found[0])
        return result.versions[0]

    async def _write(self, groups: Sequence[Group], session: str | None = None) -> list[GroupResult]:
        self._signals.ensure_running()
        ops = [op for group in groups for op in group]
        arguments = (
            [number for number, group in enumerate(groups) for _ in group],
            [_KINDS[type(op)] for op in ops],
            [op.key for op in ops],
            [_encode_expect(op.expect) for op in ops],
            [op.value if isinstance(op, Put) else None for op in ops],
            session,
        )
        for _ in range(SWEEPS_MAX):
            try:
                rows = await self._database.write(_TRANSACT, *arguments)
            except SweepFirst:
                await self._sweep()
            except SessionGone as error:
                raise SessionExpired(f"session {session} is gone; open a new one") from error
            else:
                self._signals.announce(
                    op.key
                    for op, row in zip(ops, rows, strict=True)
                    if not row["refused"] and not isinstance(op, Check)
                )
                return _decode(groups, rows)
        raise Contended(f"sessions expired {SWEEPS_MAX} times in a row while a write was tried")

    async def _records(self, sql: str, *arguments: Any) -> list[Record]:
        rows = await self._database.read(sql, *arguments)
        if any(row["expired"] for row in rows):
            await self._sweep()
            # What expires from now on was still alive when this read began.
            rows = await self._database.read(sql, *arguments)
        return [Record(row["key"], row["value"], Version(str(row["version"]))) for row in rows]

    async def _sweep(self) -> None:
        self._signals.announce(key for (key,) in await self._database.write(_SWEEP))

    async def _renew(self, session_id: str, ttl_ms: int) -> bool:
        renewed = await self._database.write(_RENEW_SESSION, session_id, ttl_ms)
        with suppress(RetryLater, OutcomeUnknown):  # others sweep as well
            await self._sweep()
        return bool(renewed)

    async def _end(self, session_id: str) -> None:
        self._signals.announce(key for (key,) in await self._database.write(_END_SESSION, session_id))


def _encode_expect(expect: Version | Expect) -> int:
    if isinstance(expect, Expect):
        return _EXPECT_ABSENT if expect is ABSENT else _EXPECT_ANY
    return int(expect) if expect.isdecimal() else _EXPECT_NEVER


def _decode(groups: Sequence[Group], rows: list[Any]) -> list[GroupResult]:
    results: list[GroupResult] = []
    place = 0
    for group in groups:
        mine = rows[place : place + len(group)]
        place += len(group)
        versions = tuple(None if row["version"] is None else Version(str(row["version"])) for row in mine)
        if any(row["refused"] for row in mine):
            found = zip(group, mine, versions, strict=True)
            results.append(Refused(tuple(Record(op.key, row["value"], v) if v else None for op, row, v in found)))
        else:
            results.append(Committed(versions))
    return results


def _bound(key: str) -> str:
    """PostgreSQL knows no character 0; no key has one below `-`, so another control character does as well."""
    return key.replace("\0", "\x01")
