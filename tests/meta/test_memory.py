"""The meta store in memory keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catena.meta.memory import MemoryMeta
from catena.runtime import SystemClock
from catena.testing.contracts.meta import MetaStoreContract


class TestMemoryMeta(MetaStoreContract):
    @pytest.fixture
    async def meta(self) -> AsyncIterator[MemoryMeta]:
        store = MemoryMeta(SystemClock())
        yield store
        await store.close()

    @pytest.fixture
    def other(self, meta: MemoryMeta) -> MemoryMeta:
        return meta
