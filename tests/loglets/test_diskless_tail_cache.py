"""The tail cache: it has what it says or nothing, and never more bytes than it may."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from catena.loglets.base import Entry
from catena.loglets.diskless.tail_cache import OVERHEAD_BYTES, TailCache
from catena.testing.contracts.loglet import Links, make_entry
from catena.types import TopicPartition

ONE, OTHER = Links(0).partition, Links(1).partition
ENTRY = make_entry("x" * 100)
SIZE = len(ENTRY.data)
KEPT = SIZE + OVERHEAD_BYTES
"""What it takes of the cache."""


def offsets(cache: TailCache, tp: TopicPartition, offset: int, max_bytes: int = 1 << 30) -> list[int]:
    return [batch.offset for batch in cache.read(tp, offset, max_bytes)]


def test_what_was_added_is_found() -> None:
    cache = TailCache(10 * KEPT)
    for offset in range(3):
        cache.add(ONE, offset, ENTRY)
    assert offsets(cache, ONE, 0) == [0, 1, 2]
    assert offsets(cache, ONE, 2) == [2]
    assert offsets(cache, ONE, 0, 2 * SIZE) == [0, 1]
    assert offsets(cache, ONE, 1, 0) == [1]
    assert offsets(cache, ONE, 3) == []
    assert offsets(cache, OTHER, 0) == []
    assert (cache.hits, cache.misses) == (4, 2)


def test_an_offset_inside_of_a_batch_finds_the_batch() -> None:
    cache = TailCache(10 * KEPT)
    cache.add(ONE, 10, make_entry("a", "b", "c"))
    cache.add(ONE, 13, make_entry("d"))
    assert [offsets(cache, ONE, offset) for offset in range(9, 15)] == [[], [10, 13], [10, 13], [10, 13], [13], []]


def test_what_lies_before_a_gap_is_forgotten() -> None:
    cache = TailCache(10 * KEPT)
    cache.add(ONE, 0, ENTRY)
    cache.add(ONE, 1, ENTRY)
    cache.add(ONE, 5, ENTRY)
    assert offsets(cache, ONE, 0) == []
    assert offsets(cache, ONE, 5) == [5]


def test_the_oldest_goes_first_whichever_partition_it_is_of() -> None:
    cache = TailCache(3 * KEPT)
    for tp, offset in ((ONE, 0), (OTHER, 0), (ONE, 1), (OTHER, 1)):
        cache.add(tp, offset, ENTRY)
    assert offsets(cache, ONE, 0) == []
    assert offsets(cache, ONE, 1) == [1]
    assert offsets(cache, OTHER, 0) == [0, 1]


def test_an_entry_that_is_larger_than_the_cache_is_not_kept() -> None:
    cache = TailCache(KEPT - 1)
    cache.add(ONE, 0, ENTRY)
    assert offsets(cache, ONE, 0) == []
    assert TailCache(0).read(ONE, 0, 1) == []


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans(), st.integers(0, 400)), max_size=60),
    st.integers(0, 10_000),
)
def test_it_is_never_wrong_and_never_too_large(adds: list[tuple[int, int, bool, int]], max_bytes: int) -> None:
    cache = TailCache(max_bytes)
    written: dict[int, list[tuple[int, int, bytes]]] = {0: [], 1: [], 2: []}
    nexts = {0: 0, 1: 0, 2: 0}
    for number, count, gap, size in adds:
        offset = nexts[number] + (10 if gap else 0)
        entry = make_entry(*["x" * size] * count)
        cache.add(Links(number).partition, offset, entry)
        nexts[number] = offset + count
        written[number].append((offset, count, bytes(entry.data)))
    kept = 0
    for number, batches in written.items():
        for at, (offset, count, _) in enumerate(batches):
            found = cache.read(Links(number).partition, offset + count - 1, 1 << 30)
            if found:
                assert [(each.offset, each.count, bytes(each.data)) for each in found] == batches[at:]
                kept += len(found[0].data) + OVERHEAD_BYTES
    assert kept <= max_bytes


def test_what_python_needs_around_small_batches_counts() -> None:
    entry = make_entry("x")
    cache = TailCache(1 << 40)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for offset in range(1000, 6000):
            cache.add(ONE, offset, Entry(entry.header, bytes(bytearray(entry.data))))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 < (after - before) / (5000 * (len(entry.data) + OVERHEAD_BYTES)) <= 1.1
