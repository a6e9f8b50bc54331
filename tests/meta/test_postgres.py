"""The meta store on a real PostgreSQL keeps the contract, and tells sure failures from unknown outcomes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import CatenaError, ConfigError, OutcomeUnknown, StoreRefused, StoreUnavailable
from catena.meta.base import Put, Record
from catena.meta.postgres import PostgresMeta
from catena.meta.postgres.errors import Undone, meaning
from catena.meta.postgres.signals import EVERYTHING, PAYLOAD_BYTES_MAX, PAYLOADS_MAX, payloads
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.meta import MetaStoreContract, eventually
from catena.testing.contracts.meta_transact import PATIENCE_S
from catena.testing.postgres_server import PostgresServer
from catena.types import ABSENT


@pytest.fixture
def schema() -> str:
    return f"test_{SystemEntropy().hex_id()}"


def open_store(server: PostgresServer, schema: str) -> PostgresMeta:
    return PostgresMeta(server.dsn, SystemClock(), SystemEntropy(), schema)


class TestPostgresMeta(MetaStoreContract):
    @pytest.fixture
    async def meta(self, postgres_server: PostgresServer, schema: str) -> AsyncIterator[PostgresMeta]:
        store = open_store(postgres_server, schema)
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, postgres_server: PostgresServer, schema: str) -> AsyncIterator[PostgresMeta]:
        store = open_store(postgres_server, schema)
        yield store
        await store.close()


@pytest.fixture(scope="module")
def own_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """One that tests may stop, if they start it again. Asking for the shared one skips them where there is none."""
    with tempfile.TemporaryDirectory(prefix="catena-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        yield server
        server.kill()


async def test_nodes_that_start_together_make_the_tables_once(postgres_server: PostgresServer, schema: str) -> None:
    stores = [open_store(postgres_server, schema) for _ in range(5)]
    await asyncio.gather(*[store.put(f"t/{number}", b"", ABSENT) for number, store in enumerate(stores)])
    assert len(await stores[0].scan("t/", "t0")) == 5
    for store in stores:
        await store.close()


async def test_schemas_keep_clusters_apart(postgres_server: PostgresServer, schema: str) -> None:
    one, two = open_store(postgres_server, schema), open_store(postgres_server, f"{schema[:30]}_two")
    await one.put("t/a", b"")
    assert await two.get("t/a") is None
    await one.close()
    await two.close()


async def test_a_server_that_is_down_has_surely_applied_nothing(own_server: PostgresServer, schema: str) -> None:
    store = open_store(own_server, schema)
    own_server.stop()
    for call in (store.get("t/a"), store.put("t/a", b""), store.transact([[Put("t/a", b"")]]), store.session(1000)):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await call
    own_server.start()
    assert await store.get("t/a") is None
    await store.close()


async def test_a_write_that_the_server_died_in_is_unknown_and_a_read_is_not(
    own_server: PostgresServer, schema: str
) -> None:
    store = open_store(own_server, schema)
    version = await store.put("t/a", b"1")
    blocker = await asyncpg.connect(own_server.dsn)
    await blocker.execute("BEGIN")
    await blocker.execute(f"LOCK {schema}.records")
    writing = asyncio.ensure_future(store.put("t/a", b"2", version))
    reading = asyncio.ensure_future(store.get("t/a"))

    async def both_wait() -> bool:
        return bool(await blocker.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") == 2)

    await eventually(both_wait)
    own_server.kill()
    with pytest.raises(OutcomeUnknown):
        await writing
    with pytest.raises(StoreUnavailable):
        await reading
    blocker.terminate()
    own_server.start()
    assert await store.get("t/a") == Record("t/a", b"1", version)
    await store.close()


async def test_what_was_acked_survives_a_crash_and_what_surely_failed_is_not_there(
    own_server: PostgresServer, schema: str
) -> None:
    store = open_store(own_server, schema)
    await store.get("t/a")
    acked: list[str] = []
    failed: list[str] = []

    async def write(lane: int) -> None:
        for number in range(100_000):
            key = f"t/{lane}-{number:06d}"
            try:
                await store.put(key, b"")
            except StoreUnavailable:
                failed.append(key)
                return
            except OutcomeUnknown:
                return
            acked.append(key)

    writing = [asyncio.ensure_future(write(lane)) for lane in range(8)]

    async def enough() -> bool:
        return len(acked) >= 200

    await eventually(enough)
    own_server.kill()
    await asyncio.gather(*writing)
    own_server.start()
    found = [record.key for record in await store.scan("t/", "t0", limit=1_000_000)]
    assert set(acked) <= set(found)
    assert not set(failed) & set(found)
    await store.close()


async def test_watches_wake_again_after_the_server_came_back(own_server: PostgresServer, schema: str) -> None:
    store, other = open_store(own_server, schema), open_store(own_server, schema)
    watch = store.watch("w/")
    await other.put("w/a", b"1")
    own_server.kill()
    own_server.start()

    async def written() -> bool:
        try:
            await other.put("w/a", b"2")
        except CatenaError:
            return False
        return True

    async def seen() -> None:
        while True:
            try:
                found = await store.get("w/a")
            except CatenaError:
                continue
            if found is not None and found.value == b"2":
                return
            await watch.changed()

    await eventually(written)
    await asyncio.wait_for(seen(), PATIENCE_S)
    await store.close()
    await other.close()


async def test_a_newer_format_is_refused(postgres_server: PostgresServer, schema: str) -> None:
    store = open_store(postgres_server, schema)
    await store.put("t/a", b"")
    await store.close()
    connection = await asyncpg.connect(postgres_server.dsn)
    await connection.execute(f"UPDATE {schema}.format SET version = 2")
    await connection.close()
    store = open_store(postgres_server, schema)
    with pytest.raises(StoreRefused, match=r"format 2.*upgrade"):
        await store.get("t/a")
    await store.close()


async def test_a_database_that_is_not_there_is_refused(postgres_server: PostgresServer) -> None:
    dsn = postgres_server.dsn.replace("/postgres?", "/nowhere?")
    store = PostgresMeta(dsn, SystemClock(), SystemEntropy())
    with pytest.raises(StoreRefused, match="no such database"):
        await store.put("t/a", b"")
    await store.close()


@pytest.mark.parametrize("schema", ["", "Upper", "with-dash", "a" * 42, "x; DROP TABLE records"])
async def test_a_schema_that_cannot_be_is_named(schema: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a schema"):
        PostgresMeta("postgresql://", SystemClock(), SystemEntropy(), schema)


def test_errors_of_the_server_say_what_to_do() -> None:
    kinds = {
        "08006": "OutcomeUnknown",
        "57P01": "OutcomeUnknown",
        "53100": "StoreFull",
        "XX001": "Corrupt",
        "28P01": "StoreRefused",
        "42501": "StoreRefused",
        "57014": "StoreUnavailable",
        "25006": "StoreUnavailable",
    }
    assert {code: type(meaning(code, "")).__name__ for code in kinds} == kinds
    assert isinstance(meaning("40P01", ""), Undone)
    assert isinstance(meaning(None, ""), StoreUnavailable)


@given(st.lists(st.text("ab/", min_size=1, max_size=512), unique=True, max_size=60))
def test_payloads_hold_all_keys_and_fit(keys: list[str]) -> None:
    pieces = payloads(keys)
    assert [key for piece in pieces for key in piece.split("\n")] == keys
    assert all(len(piece) <= PAYLOAD_BYTES_MAX for piece in pieces)


def test_too_many_keys_are_announced_as_everything() -> None:
    keys = [f"{number:0500d}" for number in range(PAYLOADS_MAX * PAYLOAD_BYTES_MAX // 400)]
    assert payloads(keys) == [EVERYTHING]
    assert payloads([EVERYTHING, "a"]) == [EVERYTHING]
    assert payloads([]) == []
