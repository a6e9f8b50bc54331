"""One write transaction for all the requests of a batch.

The versions of all records that the batch names are read first; then each request is decided in memory, in order,
against what the ones before it left behind; then the outcome is written. So a refused group costs nothing to undo, and
a record that the batch changes ten times is written once.

A batch is few statements, and each gives few rows: Python lets another thread run with every row and every statement,
and a busy event loop takes milliseconds to let this one on.

Expired sessions are removed by the first transaction that sees them, before anything else in it. Writers are serial, so
that moment is the same for all, and a session that was seen to be gone never comes back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from catena.errors import SessionExpired
from catena.meta.base import Committed, Delete, Group, GroupResult, Put, Record, Refused, expected
from catena.types import Version

CHANGES_KEPT = 256
CHANGES_BYTES_MAX = 64 << 10
ROWS_PER_INSERT = 200
BYTES_PER_COST = 1000

_BEGIN = """SELECT version, commits, (SELECT json_group_array(json_array(id, ttl_ms, expires_ms)) FROM sessions)
    FROM counters"""
_LOAD = """SELECT json_group_array(json_array(key, version, session)) FROM records
    WHERE key IN (SELECT value FROM json_each(?))"""
_DELETE = "DELETE FROM records WHERE key IN (SELECT value FROM json_each(?))"


class Write(NamedTuple):
    """Groups to apply. With a session the records that they put are ephemeral, and all are refused if it is gone."""

    groups: Sequence[Group]
    session: str | None = None


class OpenSession(NamedTuple):
    session: str
    ttl_ms: int


class RenewSession(NamedTuple):
    session: str
    ttl_ms: int


class EndSession(NamedTuple):
    session: str


WriteRequest: TypeAlias = Write | OpenSession | RenewSession | EndSession

SWEEP = Write(())
"""Changes nothing but what every transaction does: it removes expired sessions."""


def cost(request: WriteRequest) -> int:
    """How much a request adds to the transaction, in small operations."""
    if not isinstance(request, Write):
        return 1
    ops = [op for group in request.groups for op in group]
    return 1 + len(ops) + sum(len(op.value) for op in ops if isinstance(op, Put)) // BYTES_PER_COST


class Outcome(NamedTuple):
    answers: list[Any]
    changed: list[str]


class _Row(NamedTuple):
    version: int
    session: str | None
    value: bytes | None = None
    """None unless this batch has written it."""


def is_expired(ttl_ms: int, expires_ms: int, now_ms: int) -> bool:
    """The clock starts anew when the host does: a deadline that is too far away is from before that."""
    return not now_ms < expires_ms <= now_ms + ttl_ms


class Transaction:
    """What the batch sees and leaves behind. Opened by the caller with BEGIN IMMEDIATE, and ended by it."""

    def __init__(self, connection: sqlite3.Connection, now_ms: int, origin: str) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._origin = origin
        self._rows: dict[str, _Row | None] = {}
        self._changed: dict[str, None] = {}
        self._sessions_changed = False
        self._version, self._commits, sessions = connection.execute(_BEGIN).fetchone()
        self._sessions: dict[str, tuple[int, int]] = {
            session: (ttl_ms, expires_ms) for session, ttl_ms, expires_ms in msgspec.json.decode(sessions)
        }

    def run(self, requests: Sequence[WriteRequest]) -> Outcome:
        """Decide all requests and write what they change; then `has_changes` says whether there is a need to commit."""
        writes = [request for request in requests if isinstance(request, Write)]
        self._load(op.key for write in writes for group in write.groups for op in group)
        self._expire_sessions()
        answers = [self._decide(request) for request in requests]
        self._store()
        return Outcome(answers, list(self._changed))

    @property
    def has_changes(self) -> bool:
        return bool(self._changed) or self._sessions_changed

    def _decide(self, request: WriteRequest) -> Any:
        match request:
            case Write(groups, session):
                if session is not None and session not in self._sessions:
                    return SessionExpired(f"session {session} is gone; open a new one")
                return [self._apply(group, session) for group in groups]
            case OpenSession(session, ttl_ms):
                self._set_session(session, ttl_ms)
                return None
            case RenewSession(session, ttl_ms):
                known = session in self._sessions
                if known:
                    self._set_session(session, ttl_ms)
                return known
            case EndSession(session):
                self._remove_session(session)
                return None

    def _apply(self, group: Group, session: str | None) -> GroupResult:
        found = [self._rows[op.key] for op in group]
        for op, row in zip(group, found, strict=True):
            if not expected(op.expect, None if row is None else Version(str(row.version))):
                return Refused(tuple(self._record(op.key, row) for op, row in zip(group, found, strict=True)))
        versions: list[Version | None] = []
        for op in group:
            version = None
            if isinstance(op, Put):
                self._version += 1
                version = Version(str(self._version))
                self._change(op.key, _Row(self._version, session, op.value))
            elif isinstance(op, Delete):
                self._change(op.key, None)
            versions.append(version)
        return Committed(tuple(versions))

    def _record(self, key: str, row: _Row | None) -> Record | None:
        if row is None:
            return None
        value = row.value
        if value is None:  # the batch has not changed it, so the file still has it
            (value,) = self._connection.execute("SELECT value FROM records WHERE key = ?", (key,)).fetchone()
        return Record(key, value, Version(str(row.version)))

    def _change(self, key: str, row: _Row | None) -> None:
        if row is not None or self._rows[key] is not None:
            self._rows[key] = row
            self._changed[key] = None

    def _set_session(self, session: str, ttl_ms: int) -> None:
        self._sessions[session] = (ttl_ms, self._now_ms + ttl_ms)
        self._sessions_changed = True

    def _expire_sessions(self) -> None:
        for session, (ttl_ms, expires_ms) in list(self._sessions.items()):
            if is_expired(ttl_ms, expires_ms, self._now_ms):
                self._remove_session(session)

    def _remove_session(self, session: str) -> None:
        if self._sessions.pop(session, None) is None:
            return
        self._sessions_changed = True
        self._load(key for (key,) in self._connection.execute("SELECT key FROM records WHERE session = ?", (session,)))
        for key in [key for key, row in self._rows.items() if row is not None and row.session == session]:
            self._change(key, None)

    def _load(self, keys: Iterable[str]) -> None:
        """Look at the records that were not looked at before; what the batch has changed since is kept."""
        missing = dict.fromkeys(key for key in keys if key not in self._rows)
        if missing:
            self._rows.update(missing)
            (rows,) = self._connection.execute(_LOAD, (_json(missing),)).fetchone()
            self._rows.update((key, _Row(version, session)) for key, version, session in msgspec.json.decode(rows))

    def _store(self) -> None:
        if self._sessions_changed:
            self._connection.execute("DELETE FROM sessions")
            self._insert("sessions", [(session, *times) for session, times in self._sessions.items()])
        if not self._changed:
            return
        rows = [(key, self._rows[key]) for key in self._changed]
        self._insert("records", [(key, row.value, row.version, row.session) for key, row in rows if row is not None])
        if deleted := [key for key, row in rows if row is None]:
            self._connection.execute(_DELETE, (_json(deleted),))
        self._commits += 1
        self._connection.execute("UPDATE counters SET version = ?, commits = ?", (self._version, self._commits))
        self._insert(
            "changes", [(self._commits % CHANGES_KEPT, self._commits, self._origin, _join_keys(self._changed))]
        )

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        for start in range(0, len(rows), ROWS_PER_INSERT):
            chunk = rows[start : start + ROWS_PER_INSERT]
            marks = ",".join([f"({','.join('?' * len(chunk[0]))})"] * len(chunk))
            values = [value for row in chunk for value in row]
            self._connection.execute(f"INSERT OR REPLACE INTO {table} VALUES {marks}", values)


def _json(keys: Iterable[str]) -> str:
    return msgspec.json.encode(list(keys)).decode()


def _join_keys(keys: Iterable[str]) -> str | None:
    """None when there are too many to name: whoever watches anything should look."""
    joined = "\n".join(keys)
    return joined if len(joined) <= CHANGES_BYTES_MAX else None
