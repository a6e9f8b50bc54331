"""The guard is an object store like any other, until it is told that nothing is to be written."""

from __future__ import annotations

import pytest

from catena.errors import MetaBehind
from catena.objects.base import ObjectStore, Range
from catena.objects.memory import MemoryObjects
from catena.objects.read_only import GuardedObjects
from catena.runtime import SystemClock
from catena.testing.contracts.objects import ObjectStoreContract


def allow() -> None:
    """Everything."""


def refuse() -> None:
    raise MetaBehind("it was set back")


class TestGuardedObjects(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return GuardedObjects(MemoryObjects(SystemClock()), allow)

    @pytest.fixture
    def second_store(self, store: ObjectStore) -> ObjectStore:
        return store


async def test_nothing_is_put_or_deleted_where_writes_are_refused() -> None:
    store = MemoryObjects(SystemClock())
    etag = await store.put("a", [b"old"])
    guarded = GuardedObjects(store, refuse)
    with pytest.raises(MetaBehind):
        await guarded.put("a", [b"new"], etag)
    with pytest.raises(MetaBehind):
        await guarded.delete(["a"])
    assert (await guarded.get("a")).data == b"old"
    assert (await guarded.head("a")).etag == etag
    assert await guarded.get_ranges("a", [Range(0, 1)]) == [b"o"]
    assert [info.key async for info in guarded.list("")] == ["a"]
