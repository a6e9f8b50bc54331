"""Backups of real meta stores, as operators make and restore them. A restore forgets what was written since."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

import asyncpg  # type: ignore[import-untyped]


class Backups(Protocol):
    async def take(self) -> None: ...

    async def restore(self, number: int = -1) -> None:
        """The last one, or one that was taken before."""


def copy_sqlite(source: Path, target: Path) -> None:
    """While others use either of them, or nobody does."""
    with closing(sqlite3.connect(source)) as ours, closing(sqlite3.connect(target)) as copy:
        ours.backup(copy)


class SqliteBackups:
    def __init__(self, database: Path) -> None:
        self._database = database
        self._copies: list[Path] = []

    async def take(self) -> None:
        self._copies.append(self._database.with_suffix(f".backup-{len(self._copies)}"))
        copy_sqlite(self._database, self._copies[-1])

    async def restore(self, number: int = -1) -> None:
        copy_sqlite(self._copies[number], self._database)


class _Dump(NamedTuple):
    rows: dict[str, list[asyncpg.Record]]
    last_version: int


class PostgresBackups:
    """Of the schema `catena` in a database."""

    TABLES = ("sessions", "records")

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._dumps: list[_Dump] = []

    async def take(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            async with connection.transaction(isolation="repeatable_read"):
                rows = {table: await connection.fetch(f"SELECT * FROM catena.{table}") for table in self.TABLES}
                last_version = await connection.fetchval("SELECT last_value FROM catena.versions")
        finally:
            await connection.close()
        self._dumps.append(_Dump(rows, last_version))

    async def restore(self, number: int = -1) -> None:
        dump = self._dumps[number]
        connection = await asyncpg.connect(self._dsn)
        try:
            async with connection.transaction():
                await connection.execute("TRUNCATE catena.records, catena.sessions")
                for table, rows in dump.rows.items():
                    await connection.copy_records_to_table(table, schema_name="catena", records=map(tuple, rows))
                await connection.execute("SELECT setval('catena.versions', $1)", dump.last_version)
        finally:
            await connection.close()
