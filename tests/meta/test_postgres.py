"""The meta store on a real PostgreSQL keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catena.meta.postgres import PostgresMeta
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.meta import MetaStoreContract
from catena.testing.postgres_server import PostgresServer


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
