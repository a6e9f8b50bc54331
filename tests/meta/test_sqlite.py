"""The meta store on SQLite keeps the contract, also when `transact` is declared away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.meta.sqlite import SqliteMeta
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.meta import MetaStoreContract


def open_store(path: Path) -> SqliteMeta:
    return SqliteMeta(path, SystemClock(), SystemEntropy())


class TestSqliteMeta(MetaStoreContract):
    @pytest.fixture
    async def meta(self, tmp_path: Path) -> AsyncIterator[SqliteMeta]:
        store = open_store(tmp_path / "data" / "meta.db")
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, tmp_path: Path) -> AsyncIterator[SqliteMeta]:
        store = open_store(tmp_path / "data" / "meta.db")
        yield store
        await store.close()
