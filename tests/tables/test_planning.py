"""What a table lacks is read, each offset once; what is gone is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catena.loglets.base import Extent
from catena.source.planning import Bounds
from catena.source.splitting import Split
from catena.tables.planning import group_splits, oldest_ms, plan, table_progress
from catena.types import TopicId
from catena.virtual_log.topics import TopicRecord
from tests.tables.world import World

TOPIC = TopicRecord("orders", TopicId("1" * 32), 4, "diskless", 0)


def test_each_case() -> None:
    now = {0: Bounds(0, 10), 1: Bounds(5, 7), 2: Bounds(0, 3), 3: Bounds(4, 4)}
    lack = plan(TOPIC, {0: 4, 1: 2, 2: 8}, now, 100)
    assert [(each.tp.partition, each.start, each.end) for each in lack.ranges] == [(0, 4, 10), (1, 5, 7)]
    assert lack.progress == {0: 10, 1: 7, 3: 4}
    assert lack.losses == [
        "orders/1 was trimmed: offsets 2 to 4 are not in the table",
        "orders/2 went back: the table has it up to 8, and the log ends at 3",
        "orders/3 was trimmed: offsets 0 to 3 are not in the table",
    ]
    assert lack.records == 8


def test_nothing() -> None:
    assert plan(TOPIC, {0: 4}, {0: Bounds(0, 4), 1: Bounds(0, 0)}, 100) == ([], {}, [], 0)


numbers = st.integers(0, 50)


@given(st.dictionaries(st.integers(0, 3), st.tuples(numbers, numbers, numbers)), st.integers(1, 40))
def test_all_of_it_in_the_end(logs: dict[int, tuple[int, int, int]], limit: int) -> None:
    now = {number: Bounds(start, start + size) for number, (start, size, _) in logs.items()}
    progress = {number: min(at, now[number].tail) for number, (_, _, at) in logs.items()}
    first = dict(progress)
    read: dict[int, list[int]] = {number: [] for number in now}
    for _ in range(500):
        lack = plan(TOPIC, progress, now, limit)
        assert lack.records <= limit
        left = sum(max(bounds.tail - max(progress.get(n, 0), bounds.start), 0) for n, bounds in now.items())
        assert lack.rest == left - lack.records
        for each in lack.ranges:
            assert each.size > 0
            read[each.tp.partition] += range(each.start, each.end)
        if not lack.progress:
            break
        progress |= lack.progress
    for number, bounds in now.items():
        assert read[number] == list(range(max(first.get(number, 0), bounds.start), bounds.tail))


def split(*lengths: int | None, created_at_ms: int = 0) -> Split:
    extents = tuple(Extent(n, n + 1, "k", 0, length, created_at_ms=created_at_ms) for n, length in enumerate(lengths))
    return Split("orders", TopicId("1" * 32), 0, 0, len(lengths), extents)


def test_small_splits_share_a_task() -> None:
    splits = [split(10), split(20), split(30), split(None), split(1, 1, 1)]
    assert group_splits(splits, 40, 100) == [tuple(splits[:2]), tuple(splits[2:])]
    assert group_splits(splits, 1000, 3) == [tuple(splits[:3]), (splits[3],), (splits[4],)]
    assert group_splits([], 1, 1) == []


def test_the_oldest() -> None:
    assert oldest_ms([split(1, created_at_ms=7), split(1, created_at_ms=5), split(1)]) == 5
    assert oldest_ms([split(1)]) is None


async def test_where_a_table_ends_and_the_log_goes_on(world: World) -> None:
    await world.create(3)
    opened = await world.opened()
    assert await table_progress(opened.table) is None
    await world.append(["a", "b"], 1)
    await world.build()
    progress = await table_progress((await world.opened()).table)
    assert progress is not None
    assert (progress.of(0), progress.of(1), progress.version) == (0, 2, 1)
