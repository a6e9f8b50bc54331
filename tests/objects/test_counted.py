from __future__ import annotations

import pytest

from catena.counting import LATENCY_BOUNDS_S
from catena.errors import Conflict, ObjectMissing
from catena.objects.base import ObjectStore, Range
from catena.objects.counted import KINDS, LIST_PAGE, CountedObjects
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock
from catena.testing.contracts.objects import ObjectStoreContract, list_keys
from catena.types import ABSENT


class TestCountedObjects(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return CountedObjects(MemoryObjects(SystemClock()), SystemClock())

    @pytest.fixture
    def second_store(self, store: ObjectStore) -> ObjectStore:
        return store


class TickingClock(SystemClock):
    """Every look takes as long as it is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tick_seconds = 0.0

    def monotonic(self) -> float:
        self.now += self.tick_seconds
        return self.now


async def test_requests_and_bytes_are_counted_by_kind() -> None:
    store = CountedObjects(MemoryObjects(SystemClock()), SystemClock())
    await store.put("a", [b"12345", b"678"])
    await store.put("b", [memoryview(b"12")])
    await store.get("a")
    await store.get_ranges("a", [Range(0, 2), Range(3, 0), Range(4, 4)])
    await store.head("a")
    await store.delete(["a", "b"])
    counts = store.snapshot()
    assert tuple(counts) == KINDS
    assert {kind: (count.requests, count.bytes) for kind, count in counts.items()} == {
        "put": (2, 10),
        "get": (1, 8),
        "range_get": (2, 6),
        "head": (1, 0),
        "list": (0, 0),
        "delete": (1, 0),
    }


async def test_errors_are_counted_by_name() -> None:
    store = CountedObjects(MemoryObjects(SystemClock()), SystemClock())
    for _ in range(2):
        with pytest.raises(ObjectMissing):
            await store.get("a")
    await store.put("a", [b"123"])
    with pytest.raises(Conflict):
        await store.put("a", [b"456"], ABSENT)
    counts = store.snapshot()
    assert counts["get"].errors == {"ObjectMissing": 2}
    assert (counts["put"].errors, counts["put"].requests, counts["put"].bytes) == ({"Conflict": 1}, 2, 3)


async def test_a_listing_counts_its_pages() -> None:
    inner = MemoryObjects(SystemClock())
    store = CountedObjects(inner, SystemClock())
    assert await list_keys(store, "") == []
    assert store.snapshot()["list"].requests == 1
    for number in range(LIST_PAGE + 1):
        await inner.put(f"{number:05d}", [])
    assert len(await list_keys(store, "")) == LIST_PAGE + 1
    assert store.snapshot()["list"].requests == 3


async def test_latencies_fall_into_buckets() -> None:
    clock = TickingClock()
    store = CountedObjects(MemoryObjects(SystemClock()), clock)
    for clock.tick_seconds in (0.0005, 0.001, 0.003, 0.150, 60.0):
        await store.put("a", [b""])
    put = store.snapshot()["put"]
    bounds = (*LATENCY_BOUNDS_S, None)
    assert [bound for bound, count in zip(bounds, put.latency.buckets, strict=True) for _ in range(count)] == [
        0.0005,
        0.001,
        0.005,
        0.2,
        None,
    ]
    assert put.latency.sum == pytest.approx(60.1545)


async def test_a_snapshot_does_not_change_any_more() -> None:
    store = CountedObjects(MemoryObjects(SystemClock()), SystemClock())
    before = store.snapshot()
    await store.put("a", [b"1"])
    assert before["put"].requests == 0
    assert before["put"].latency.count == 0
