"""Connections to PostgreSQL: a bounded pool, tables made on first use, and no call without a time limit.

A call is one statement, hence one transaction and one round trip. If it fails before anything was sent, or the server
says that it failed, nothing was applied; else see `errors`.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import resources
from types import ModuleType
from typing import Any, TypeVar

from catena.errors import (
    BackPressure,
    CatenaError,
    ConfigError,
    Contended,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from catena.meta.postgres.errors import Undone, meaning
from catena.runtime import Clock, Entropy

FORMAT = 1
CONNECTIONS_MAX = 16
CALLS_MAX = 10_000
CONNECT_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 15.0
CLOSE_TIMEOUT_S = 5.0
ATTEMPTS = 10
RETRY_PAUSE_S = 0.02

T = TypeVar("T")

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_SETUP_LOCK = int.from_bytes(b"Catena")

_SESSION_SETTINGS = {
    "application_name": "catena",
    "default_transaction_isolation": "read committed",
    "synchronous_commit": "on",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S:g}s",
    # All access is by key, and the only joins are of arrays. Plans are made once for all, so they must suit tables and
    # arrays of any size, not those that the planner happened to see: no scans, and no loops in loops.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_nestloop": "off",
    "jit": "off",
}


class Database:
    def __init__(self, dsn: str, schema: str, clock: Clock, entropy: Entropy) -> None:
        if not _SCHEMA_NAME.fullmatch(schema):
            raise ConfigError(f"{schema!r} cannot be a schema: use a-z, 0-9 and _, at most 41 of them")
        self._dsn = dsn
        self._schema = schema
        self._clock = clock
        self._entropy = entropy
        self._driver = _import_driver()
        self.failures = (self._driver.PostgresError, self._driver.InterfaceError, OSError, TimeoutError)
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._failure: CatenaError | None = None
        self._closed = False
        self._calls = 0

    async def read(self, sql: str, *arguments: Any) -> list[Any]:
        try:
            return await self._call(sql, arguments)
        except OutcomeUnknown as error:
            raise StoreUnavailable(str(error)) from error

    async def write(self, sql: str, *arguments: Any) -> list[Any]:
        """Sent again when PostgreSQL has undone it because of others."""
        for attempt in range(ATTEMPTS):
            try:
                return await self._call(sql, arguments)
            except Undone:
                await self._clock.sleep(RETRY_PAUSE_S * attempt * self._entropy.jitter())
        raise Contended(f"PostgreSQL undid a write {ATTEMPTS} times because of others")

    async def connect(self) -> Any:
        """A connection outside of the pool."""
        await self._ensure_pool()
        return await self._attempt(lambda: self._driver.connect(self._dsn, **self._options()))

    async def close(self) -> None:
        self._closed = True
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), CLOSE_TIMEOUT_S)
            except self.failures:
                pool.terminate()

    async def _call(self, sql: str, arguments: tuple[Any, ...]) -> list[Any]:
        if self._calls >= CALLS_MAX:
            raise BackPressure(f"{CALLS_MAX} calls wait for PostgreSQL")
        self._calls += 1
        try:
            pool = await self._ensure_pool()
            connection = await self._attempt(lambda: pool.acquire(timeout=CONNECT_TIMEOUT_S))
            try:
                return await self._fetch(connection, sql, arguments)
            finally:
                with suppress(*self.failures):
                    await pool.release(connection)
        finally:
            self._calls -= 1

    async def _fetch(self, connection: Any, sql: str, arguments: tuple[Any, ...]) -> list[Any]:
        try:
            rows: list[Any] = await connection.fetch(sql, *arguments)
        except self._driver.PostgresError as error:
            raise meaning(error.sqlstate, str(error)) from error
        except (self._driver.InterfaceError, OSError, TimeoutError) as error:
            raise OutcomeUnknown(f"PostgreSQL gave no answer ({error or type(error).__name__})") from error
        return rows

    async def _attempt(self, connect: Callable[[], Awaitable[T]]) -> T:
        """For steps after which surely nothing was applied."""
        try:
            return await connect()
        except self._driver.PostgresError as error:
            found = meaning(error.sqlstate, str(error))
            raise StoreUnavailable(str(found)) if isinstance(found, OutcomeUnknown) else found from error
        except (self._driver.InterfaceError, OSError, TimeoutError) as error:
            raise StoreUnavailable(f"PostgreSQL cannot be reached ({error or type(error).__name__})") from error

    async def _ensure_pool(self) -> Any:
        if self._pool is not None:
            return self._pool
        failure_before = self._failure
        async with self._opening:
            if self._closed:
                raise StoreUnavailable("the meta store is closed")
            if self._failure is not None and self._failure is not failure_before:
                # Whoever waited for an attempt that failed does not wait for another one.
                raise type(self._failure)(str(self._failure))
            if self._pool is None:
                try:
                    self._pool = await self._open_pool()
                except CatenaError as error:
                    self._failure = error
                    raise
        return self._pool

    async def _open_pool(self) -> Any:
        pool = await self._attempt(self._create_pool)
        try:
            await self._attempt(lambda: self._ensure_schema(pool))
        except BaseException:
            pool.terminate()
            raise
        return pool

    def _create_pool(self) -> Awaitable[Any]:
        pool: Awaitable[Any] = self._driver.create_pool(
            self._dsn,
            min_size=1,
            max_size=CONNECTIONS_MAX,
            reset=_leave_as_it_is,
            **self._options(),
        )
        return pool

    async def _ensure_schema(self, pool: Any) -> None:
        """Safe when several nodes start at once: the first one makes everything, and the others wait for it."""
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _SETUP_LOCK)
            if await connection.fetchval("SELECT to_regclass($1) IS NULL", f"{self._schema}.format"):
                if await connection.fetchval("SELECT to_regnamespace($1) IS NULL", self._schema):
                    await connection.execute(f"CREATE SCHEMA {self._schema}")
                await connection.execute(resources.files(__package__).joinpath("schema.sql").read_text())
            found = await connection.fetchval("SELECT version FROM format")
        if found != FORMAT:
            raise StoreRefused(f"the meta store has format {found}, and this version reads {FORMAT}; upgrade Catena")

    def _options(self) -> dict[str, Any]:
        return {
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": ANSWER_TIMEOUT_S,
            "server_settings": _SESSION_SETTINGS | {"search_path": self._schema},
        }


async def _leave_as_it_is(_connection: Any) -> None:
    """No call changes a connection's state, so the round trip that would reset it is spared."""


def _import_driver() -> ModuleType:
    try:
        return importlib.import_module("asyncpg")
    except ImportError as error:
        raise ConfigError("the PostgreSQL meta store needs asyncpg: pip install catena-log[postgres]") from error
