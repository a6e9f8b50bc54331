"""What the two threads of the store do; each has its own connection, opened by its first batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from catena.meta.sqlite.batch_thread import Served
from catena.meta.sqlite.commit import Transaction, WriteRequest, is_expired
from catena.meta.sqlite.database import open_database, translate
from catena.meta.sqlite.write_lock import WriteLock
from catena.runtime import Clock


class Query(NamedTuple):
    """`as_it_is`: also while there are expired sessions; otherwise the answer is then SweepFirst."""

    sql: str
    parameters: tuple[Any, ...] = ()
    as_it_is: bool = False


class SweepFirst(NamedTuple):
    """There are expired sessions, and only a write may remove them."""


class Reader:
    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._connection: sqlite3.Connection | None = None

    def serve(self, take: Callable[[], list[Query]]) -> Served:
        if self._connection is None:
            self._connection = open_database(self._path)
        try:
            return self._answer(self._connection, take())
        except sqlite3.Error as error:
            self.finish()
            raise translate(error, self._path) from error

    def finish(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answer(self, connection: sqlite3.Connection, queries: list[Query]) -> Served:
        sweep_first = not all(query.as_it_is for query in queries) and self._has_expired_sessions(connection)
        return Served(
            [
                SweepFirst() if sweep_first and not as_it_is else connection.execute(sql, parameters).fetchall()
                for sql, parameters, as_it_is in queries
            ]
        )

    def _has_expired_sessions(self, connection: sqlite3.Connection) -> bool:
        now_ms = monotonic_ms(self._clock)
        sessions = connection.execute("SELECT ttl_ms, expires_ms FROM sessions").fetchall()
        return any(is_expired(ttl_ms, expires_ms, now_ms) for ttl_ms, expires_ms in sessions)


class Writer:
    def __init__(self, path: Path, clock: Clock, origin: str, wake: Callable[[list[str]], None]) -> None:
        """`origin` marks this process's commits; `wake` is called in the event loop with the keys that changed."""
        self._path = path
        self._clock = clock
        self._origin = origin
        self._wake = wake
        self._connection: sqlite3.Connection | None = None
        self._lock: WriteLock | None = None

    def serve(self, take: Callable[[], list[WriteRequest]]) -> Served:
        if self._lock is None:
            self._lock = WriteLock(self._path)
        if self._connection is None:
            self._connection = open_database(self._path)
        with self._lock.held():
            # What was asked while we waited for our turn comes along.
            return self._commit(self._connection, take)

    def finish(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _commit(self, connection: sqlite3.Connection, take: Callable[[], list[WriteRequest]]) -> Served:
        committing = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(connection, monotonic_ms(self._clock), self._origin)
            outcome = transaction.run(take())
            committing = transaction.has_changes
            connection.execute("COMMIT" if committing else "ROLLBACK")
            return Served(outcome.answers, partial(self._wake, outcome.changed))
        except Exception as error:
            self._roll_back(connection)
            if isinstance(error, sqlite3.Error):
                raise translate(error, self._path, committing) from error
            raise

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """A connection that failed is not used again, since SQLite may have rolled back by itself, or not."""
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        connection.close()
        self._connection = None


def monotonic_ms(clock: Clock) -> int:
    return int(clock.monotonic() * 1000)
