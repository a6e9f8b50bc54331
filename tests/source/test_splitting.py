"""However ranges are cut, the parts are the whole, and each is bounded."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Corrupt
from catena.loglets.base import Extent
from catena.source.planning import OffsetRange
from catena.source.splitting import cut_by_extents, cut_by_offsets
from catena.types import TopicId, TopicPartition

ID = TopicId("0" * 32)
ORDERS, OTHERS = TopicPartition("orders", ID, 0), TopicPartition("orders", ID, 1)

starts_and_sizes = st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 10_000)), min_size=1, max_size=8)


def ranges_of(drawn: list[tuple[int, int]]) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("orders", ID, number), start, start + size)
        for number, (start, size) in enumerate(drawn)
    ]


def joined(parts: list[OffsetRange]) -> list[OffsetRange]:
    """Neighbours put together again."""
    whole: list[OffsetRange] = []
    for part in parts:
        assert part.size > 0
        if whole and whole[-1].tp == part.tp:
            assert whole[-1].end == part.start
            whole[-1] = whole[-1]._replace(end=part.end)
        else:
            whole.append(part)
    return whole


@given(starts_and_sizes, st.none() | st.integers(1, 50), st.none() | st.integers(1, 5000))
def test_parts_are_the_whole(drawn: list[tuple[int, int]], least: int | None, most: int | None) -> None:
    ranges = ranges_of(drawn)
    if most is not None:
        most = max(most, max(each.size for each in ranges) // 100)
    parts = cut_by_offsets(ranges, least, most)
    assert joined(parts) == ranges
    assert most is None or all(part.size <= most for part in parts)


@given(starts_and_sizes, st.integers(1, 50))
def test_there_are_about_as_many_as_asked_for(drawn: list[tuple[int, int]], least: int) -> None:
    """Each range is rounded to whole parts."""
    ranges = ranges_of([(start, size + 10_000) for start, size in drawn])
    parts = cut_by_offsets(ranges, least, None)
    assert len(parts) >= len(ranges)
    assert abs(len(parts) - max(least, len(ranges))) <= len(ranges)


@pytest.mark.parametrize(
    ("ranges", "least", "expected"),
    [
        ([(1, 5)], 3, [(0, 1, 2), (0, 2, 3), (0, 3, 5)]),
        ([(1, 5)], 4, [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]),
        ([(1, 3)], 4, [(0, 1, 2), (0, 2, 3)]),
        ([(1, 5), (1, 21)], 4, [(0, 1, 5), (1, 1, 7), (1, 7, 14), (1, 14, 21)]),
        ([(1, 5), (1, 21)], 2, [(0, 1, 5), (1, 1, 21)]),
        ([(0, 10), (0, 10), (0, 10)], 4, [(0, 0, 10), (1, 0, 10), (2, 0, 10)]),
    ],
)
def test_as_spark_cuts(ranges: list[tuple[int, int]], least: int, expected: list[tuple[int, int, int]]) -> None:
    parts = cut_by_offsets(ranges_of([(start, end - start) for start, end in ranges]), least, None)
    assert [(part.tp.partition, part.start, part.end) for part in parts] == expected


@st.composite
def extents_and_cuts(draw: st.DrawFn) -> tuple[list[Extent], list[OffsetRange]]:
    counts = draw(st.lists(st.integers(1, 20), min_size=1, max_size=20))
    ends = list(itertools.accumulate(counts, initial=draw(st.integers(0, 1000))))
    extents = [
        Extent(start, end, f"object-{number}", 0, draw(st.none() | st.integers(1, 100)))
        for number, (start, end) in enumerate(itertools.pairwise(ends))
    ]
    cuts = sorted(draw(st.sets(st.integers(ends[0], ends[-1]), min_size=2, max_size=6)))
    return extents, [OffsetRange(ORDERS, start, end) for start, end in itertools.pairwise(cuts)]


@given(extents_and_cuts(), st.integers(1, 300), st.integers(1, 5))
def test_splits_hold_what_they_need_and_no_more(
    drawn: tuple[list[Extent], list[OffsetRange]], max_bytes: int, max_extents: int
) -> None:
    extents, ranges = drawn
    splits = cut_by_extents(ranges, extents, max_bytes, max_extents)
    parts = [OffsetRange(split.tp, split.start, split.end) for split in splits]
    assert joined(parts) == [OffsetRange(ORDERS, ranges[0].start, ranges[-1].end)]
    assert {each.start for each in ranges} <= {part.start for part in parts}
    for split in splits:
        needed = [each for each in extents if each.end > split.start and each.offset < split.end]
        assert list(split.extents) == needed
        assert len(needed) <= max_extents
        assert len(needed) == 1 or sum(each.length or 0 for each in needed) <= max_bytes
    for split, following in itertools.pairwise(splits):
        if following.start not in {each.start for each in ranges}:
            more = [*split.extents, following.extents[0]]
            assert len(more) > max_extents or sum(each.length or 0 for each in more) > max_bytes, "cut too early"


@pytest.mark.parametrize(
    "extents",
    [
        [],
        [Extent(0, 5, "a")],
        [Extent(3, 10, "a")],
        [Extent(0, 4, "a"), Extent(6, 10, "b")],
    ],
)
def test_a_gap_is_found(extents: list[Extent]) -> None:
    with pytest.raises(Corrupt, match=r"orders/0: offset . is in no extent"):
        cut_by_extents([OffsetRange(ORDERS, 2, 10)], extents)
