from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catena.objects.base import Range
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.objects.ranges import coalesce, read_ranges
from catena.runtime import SystemClock

ranges_of_1000 = st.lists(
    st.tuples(st.integers(0, 999), st.integers(1, 200)).map(lambda each: Range(each[0], min(each[1], 1000 - each[0]))),
    min_size=1,
    max_size=20,
)


@given(ranges_of_1000, st.integers(0, 50), st.integers(1, 400))
def test_all_is_covered_once_and_nothing_far_apart_is_joined(wanted: list[Range], gap: int, limit: int) -> None:
    merged = coalesce(wanted, gap, limit)
    assert all(
        any(part.start <= start and start + length <= part.start + part.length for part in merged)
        for start, length in wanted
    )
    assert sum(part.length for part in merged) <= sum(length for _, length in wanted) + gap * len(wanted)
    for part in merged:
        assert part.length <= limit or part in wanted


def test_close_ranges_become_one() -> None:
    assert coalesce([Range(110, 50), Range(0, 100)], 10, 160) == [Range(0, 160)]
    assert coalesce([Range(0, 100), Range(111, 50)], 10, 1000) == [Range(0, 100), Range(111, 50)]
    assert coalesce([Range(0, 100), Range(100, 50)], 10, 149) == [Range(0, 100), Range(100, 50)]


@given(ranges_of_1000, st.integers(0, 50), st.integers(1, 400))
async def test_each_range_gets_its_bytes(wanted: list[Range], gap: int, limit: int) -> None:
    clock = SystemClock()
    objects = CountedObjects(MemoryObjects(clock), clock)
    data = bytes(number % 251 for number in range(1000))
    await objects.put("object", [data])
    found = await read_ranges(objects, "object", wanted, gap, limit)
    assert [bytes(each) for each in found] == [data[start : start + length] for start, length in wanted]
    assert objects.snapshot()["range_get"].requests == len(coalesce(wanted, gap, limit))
