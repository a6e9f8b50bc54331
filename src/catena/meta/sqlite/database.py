"""The SQLite file: its tables, how it is opened, and what its errors mean to a caller.

WAL with synchronous=FULL: a commit is in the log file and synced before anyone can see it, and readers see a snapshot
without waiting for the writer.

| table | row |
|---|---|
| `records` | a record; `session` is null unless it is ephemeral |
| `sessions` | a session and when it expires, on the monotonic clock that the processes of a host share |
| `counters` | one row: the last version given out (never again, not even after a delete), and the number of commits |
| `changes` | a ring: which keys the last commits changed, and who made them, for the watches of other processes |
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from catena.errors import CatenaError, Corrupt, OutcomeUnknown, StoreFull, StoreRefused, StoreUnavailable
from catena.meta.sqlite.write_lock import WriteLock

FORMAT = 1
BUSY_TIMEOUT_S = 5.0
WAL_BYTES_KEPT = 64 << 20

_APPLICATION_ID = 0x43415445  # "CATE"
_IOERR_SHMSIZE = 4874  # the shared-memory file could not grow; sqlite3 names it from Python 3.11 on some platforms only

_SCHEMA = (
    "CREATE TABLE records"
    " (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, session TEXT) WITHOUT ROWID",
    "CREATE INDEX records_by_session ON records (session) WHERE session IS NOT NULL",
    "CREATE TABLE sessions (id TEXT PRIMARY KEY, ttl_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE counters (version INTEGER NOT NULL, commits INTEGER NOT NULL)",
    "INSERT INTO counters VALUES (0, 0)",
    "CREATE TABLE changes (slot INTEGER PRIMARY KEY, number INTEGER NOT NULL, origin TEXT NOT NULL, keys TEXT)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file, and make it if it is not there; several processes may do so at once.

    A file that is finished is opened without the lock, so that whoever only reads need not wait for a writer that is
    stopped.
    """
    lock = WriteLock(path)
    try:
        connection = _open_finished(path)
        if connection is not None:
            return connection
        with lock.held():
            return _open_alone(path)
    except sqlite3.Error as error:
        raise translate(error, path) from error
    finally:
        lock.close()


def _open_finished(path: Path) -> sqlite3.Connection | None:
    """None if there is anything to make or to complain about. One transaction makes the file and numbers it."""
    if not path.exists():
        return None
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    with suppress(sqlite3.Error):
        marks = [_scalar(connection, f"PRAGMA {name}") for name in ("journal_mode", "application_id", "user_version")]
        if marks == ["wal", _APPLICATION_ID, FORMAT]:
            _configure(connection)
            return connection
    connection.close()
    return None


def _open_alone(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        if _scalar(connection, "PRAGMA journal_mode = WAL") != "wal":
            raise StoreRefused(f"{path} is on a file system where SQLite cannot share memory; use a local disk")
        _configure(connection)
        _ensure_schema(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")  # where statements of many rows keep what undoes them
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")


def _ensure_schema(connection: sqlite3.Connection, path: Path) -> None:
    if _scalar(connection, "SELECT count(*) FROM sqlite_master") == 0:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")
    if _scalar(connection, "PRAGMA application_id") != _APPLICATION_ID:
        raise StoreRefused(f"{path} is an SQLite file of some other program")
    found = _scalar(connection, "PRAGMA user_version")
    if found != FORMAT:
        raise StoreRefused(f"{path} has format {found}, and this version of Catena reads {FORMAT}; upgrade Catena")


def _scalar(connection: sqlite3.Connection, sql: str) -> object:
    return connection.execute(sql).fetchone()[0]


def translate(error: sqlite3.Error, path: Path, committing: bool = False) -> CatenaError:
    """What a failed statement means; `committing` says that it was the COMMIT.

    A commit that found no space has not written its last frame, and one that was busy has not begun. After any other
    failure, a failed fsync above all, the frames may be in the log file and come to life in the next recovery.
    """
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_FULL or code == _IOERR_SHMSIZE:
        return StoreFull(f"no space left for the meta store {path}; nothing was written")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(f"the meta store {path} is locked by another program ({error})")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(f"the meta store {path} is damaged ({error}); restore it from a backup")
    if committing:
        return OutcomeUnknown(f"a commit to the meta store {path} failed half-way ({error})")
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return StoreRefused(f"the meta store {path} cannot be opened for writing ({error})")
    return StoreUnavailable(f"the meta store {path} failed ({error})")
