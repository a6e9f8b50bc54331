"""A meta store that counts keeps the contract, and counts what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catena.errors import Conflict
from catena.meta.base import Check, Put
from catena.meta.counted import KINDS, CountedMeta
from catena.meta.memory import MemoryMeta
from catena.runtime import SystemClock
from catena.testing.contracts.meta import MetaStoreContract
from catena.types import ABSENT


class TestCountedMeta(MetaStoreContract):
    @pytest.fixture
    async def meta(self) -> AsyncIterator[CountedMeta]:
        store = CountedMeta(MemoryMeta(SystemClock()), SystemClock())
        yield store
        await store.close()

    @pytest.fixture
    def other(self, meta: CountedMeta) -> CountedMeta:
        return meta


@pytest.fixture
async def store() -> AsyncIterator[CountedMeta]:
    store = CountedMeta(MemoryMeta(SystemClock()), SystemClock())
    yield store
    await store.close()


async def test_calls_and_bytes_are_counted_by_kind(store: CountedMeta) -> None:
    await store.put("a", b"12345")
    await store.put("b", b"678")
    await store.get("a")
    await store.get("nothing")
    await store.ceiling("b", "c")
    await store.scan("a", "c")
    await store.delete("a")
    await store.delete_range("a", "c")
    await (await store.session(1_000)).close()
    counts = store.snapshot()
    assert tuple(counts) == KINDS
    assert {kind: (count.requests, count.bytes) for kind, count in counts.items()} == {
        "get": (2, 5),
        "put": (2, 8),
        "delete": (1, 0),
        "ceiling": (1, 3),
        "scan": (1, 8),
        "delete_range": (1, 0),
        "transact": (0, 0),
        "session": (1, 0),
    }
    assert all(count.latency.count == count.requests for count in counts.values())


async def test_what_was_refused_is_counted_by_name(store: CountedMeta) -> None:
    await store.put("a", b"1")
    with pytest.raises(Conflict):
        await store.put("a", b"2", ABSENT)
    await store.transact([[Put("a", b"22", ABSENT)], [Put("b", b"333", ABSENT)], [Check("c", ABSENT)]])
    counts = store.snapshot()
    assert (counts["put"].requests, counts["put"].errors) == (2, {"Conflict": 1})
    assert (counts["transact"].requests, counts["transact"].bytes, counts["transact"].errors) == (1, 5, {"Refused": 1})


async def test_a_snapshot_does_not_change_any_more(store: CountedMeta) -> None:
    before = store.snapshot()
    await store.put("a", b"1")
    assert (before["put"].requests, before["put"].latency.count) == (0, 0)
