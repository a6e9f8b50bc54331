"""The memory store keeps the contract."""

from __future__ import annotations

import pytest

from catena.objects.base import ObjectStore
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock
from catena.testing.contracts.objects import ObjectStoreContract


class TestMemoryObjects(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjects(SystemClock())

    @pytest.fixture
    def second_store(self, store: ObjectStore) -> ObjectStore:
        return store


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a"), ("a", "a/b/c")])
async def test_a_key_cannot_go_on_where_another_ends(first: str, second: str) -> None:
    store = MemoryObjects(SystemClock())
    await store.put(first, [b"1"])
    with pytest.raises(ValueError, match="cannot be"):
        await store.put(second, [b"1"])
