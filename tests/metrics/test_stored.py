"""What is in a bucket."""

from __future__ import annotations

from catena.meta import keys
from catena.metrics.stored import KINDS, kind_of, scan
from catena.objects.counted import LIST_PAGE, CountedObjects
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock
from catena.types import TopicId, TopicPartition

TP = TopicPartition("t", TopicId("a" * 32), 3)


async def test_objects_by_their_kind() -> None:
    store = MemoryObjects(SystemClock())
    for key, size in {
        keys.wal_blob("b" * 32): 100,
        keys.wal_blob("c" * 32): 10,
        keys.segment(TP, "d" * 32, "e" * 32): 2000,
        keys.manifest(TP, "d" * 32): 30,
        keys.CLUSTER: 5,
        "tables/delta/t/part-0.parquet": 700,
        "meta/llog/topics/t": 8,
        "mine/notes.txt": 1,
    }.items():
        await store.put(key, [bytes(size)])
    found = await scan(store, SystemClock())
    assert found.objects == {"wal": 2, "segments": 1, "manifests": 1, "tables": 1, "meta": 1, "other": 2}
    assert found.bytes == {"wal": 110, "segments": 2000, "manifests": 30, "tables": 700, "meta": 8, "other": 6}
    assert (found.requests, found.is_complete) == (1, True)
    assert tuple(found.objects) == KINDS


async def test_it_says_what_it_costs_and_waits_for_as_long() -> None:
    clock = SystemClock()
    store = CountedObjects(MemoryObjects(clock), clock)
    for number in range(2 * LIST_PAGE + 1):
        await store.put(f"o/{number:05d}", [])
    found = await scan(store, clock)
    assert found.requests == store.snapshot()["list"].requests == 3
    assert found.pause_s == 18


async def test_a_bucket_that_is_too_large() -> None:
    store = MemoryObjects(SystemClock())
    for number in range(11):
        await store.put(f"o/{number:05d}", [b"1"])
    found = await scan(store, SystemClock(), max_objects=10)
    assert (found.objects["other"], found.is_complete) == (10, False)
    assert (await scan(store, SystemClock(), max_objects=11)).is_complete


def test_what_only_looks_like_ours() -> None:
    assert kind_of("tables") == "other"
    assert kind_of("segments/a") == "other"
    assert kind_of("metadata/x") == "other"
