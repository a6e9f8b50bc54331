"""What is tiered and merged: in order, without gaps, in segments of a good size, and nothing too soon."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.records import IndexEntry
from catena.pipeline.plan import Merge, choose_merges, choose_runs, kept_segments
from catena.pipeline.settings import TierSettings

NOW = 1_000_000_000
SETTINGS = TierSettings(segment_bytes=1000, min_age_ms=100, min_bytes=300, max_wait_ms=10_000, merge_segments=4)


def runs(*sizes: int, first: int = 0, age_ms: int = 1000) -> list[IndexEntry]:
    """Of two records each, one after the other."""
    return [
        IndexEntry(first + 2 * number + 1, 2, "blob", size, created_at_ms=NOW - age_ms)
        for number, size in enumerate(sizes)
    ]


def segments(*sizes: int) -> list[SegmentInfo]:
    return [
        SegmentInfo(
            key=f"{number}",
            base=10 * number,
            end=10 * number + 10,
            size=size,
            body_at=0,
            index_at=size,
            index_length=0,
            index_crc=0,
            max_timestamp=0,
            min_timestamp=0,
            batches=1,
            created_at_ms=0,
            appended_at_ms=0,
            compaction_id="",
        )
        for number, size in enumerate(sizes)
    ]


def sizes_of(chosen: list[list[IndexEntry]]) -> list[list[int | None]]:
    return [[run.byte_length for run in segment] for segment in chosen]


class TestRuns:
    def test_segments_are_cut_at_their_size(self) -> None:
        chosen = choose_runs(runs(400, 400, 400, 400, 400), 0, NOW, SETTINGS)
        assert sizes_of(chosen) == [[400, 400], [400, 400], [400]]

    def test_a_run_that_is_larger_than_a_segment_is_one(self) -> None:
        assert sizes_of(choose_runs(runs(400, 5000, 400), 0, NOW, SETTINGS)) == [[400], [5000], [400]]

    def test_what_is_little_waits_for_more_until_it_is_old(self) -> None:
        assert sizes_of(choose_runs(runs(900, 200), 0, NOW, SETTINGS)) == [[900]]
        assert choose_runs(runs(200, age_ms=9_999), 0, NOW, SETTINGS) == []
        assert sizes_of(choose_runs(runs(200, age_ms=10_000), 0, NOW, SETTINGS)) == [[200]]

    def test_what_is_young_stays_and_all_that_follows_it(self) -> None:
        young, old = runs(500, first=2, age_ms=99), runs(500, first=4)
        assert sizes_of(choose_runs([*runs(500), *young, *old], 0, NOW, SETTINGS)) == [[500]]

    def test_a_gap_ends_it(self) -> None:
        assert sizes_of(choose_runs([*runs(500), *runs(500, first=4)], 0, NOW, SETTINGS)) == [[500]]
        assert choose_runs(runs(500), 1, NOW, SETTINGS) == []

    def test_what_is_forced_is_taken_whatever_its_age_and_size(self) -> None:
        entries = runs(10, 10, 10, age_ms=0)
        assert sizes_of(choose_runs(entries, 0, NOW, SETTINGS, force_up_to=4)) == [[10, 10]]
        assert sizes_of(choose_runs(entries, 0, NOW, SETTINGS, force_up_to=5)) == [[10, 10, 10]]
        assert choose_runs(entries, 0, NOW, SETTINGS, force_up_to=0) == []

    def test_a_pass_is_bounded(self) -> None:
        settings = msgspec.structs.replace(SETTINGS, max_runs=3)
        assert sizes_of(choose_runs(runs(*[400] * 10), 0, NOW, settings)) == [[400, 400], [400]]

    @given(
        st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 20_000)), max_size=30),
        st.none() | st.integers(0, 60),
    )
    def test_what_is_chosen_is_contiguous_and_of_a_good_size(
        self, drawn: list[tuple[int, int]], force_up_to: int | None
    ) -> None:
        entries = [runs(size, first=2 * n, age_ms=age)[0] for n, (size, age) in enumerate(drawn)]
        chosen = choose_runs(entries, 0, NOW, SETTINGS, force_up_to)
        assert list(itertools.chain(*chosen)) == entries[: sum(map(len, chosen))]
        for segment in chosen:
            size = sum(run.byte_length or 0 for run in segment)
            assert len(segment) == 1 or size <= SETTINGS.segment_bytes


class TestMerges:
    @pytest.mark.parametrize(
        ("sizes", "merges"),
        [
            ([], []),
            ([100, 100, 100], []),
            ([100, 100, 100, 100], [Merge(0, 4)]),
            ([300, 400], [Merge(0, 2)]),
            ([900, 100, 100, 100, 100, 900], [Merge(1, 5)]),
            ([300, 300, 300, 300, 300, 300], [Merge(0, 3), Merge(3, 6)]),
            ([500, 500, 500], [Merge(0, 2)]),
            ([501, 400, 501], []),
            ([2000, 100, 2000, 100], []),
        ],
    )
    def test_small_neighbours_become_one(self, sizes: list[int], merges: list[Merge]) -> None:
        assert choose_merges(segments(*sizes), SETTINGS) == merges

    @given(st.lists(st.integers(1, 600), min_size=1, max_size=30), st.data())
    def test_what_was_compacted_and_what_was_not_stay_apart(self, sizes: list[int], data: st.DataObject) -> None:
        infos = segments(*sizes)
        edge = data.draw(st.sampled_from(infos)).base
        for merge in choose_merges(infos, SETTINGS, edge):
            inside = infos[merge.start : merge.end]
            assert inside[-1].end <= edge or inside[0].base >= edge

    def test_on_both_sides_of_what_was_compacted_there_is_a_merge(self) -> None:
        assert choose_merges(segments(*[100] * 8), SETTINGS) == [Merge(0, 8)]
        assert choose_merges(segments(*[100] * 8), SETTINGS, 40) == [Merge(0, 4), Merge(4, 8)]

    @given(st.lists(st.integers(1, 1500), max_size=40))
    def test_merging_comes_to_an_end(self, sizes: list[int]) -> None:
        for _ in range(20):
            merges = choose_merges(segments(*sizes), SETTINGS)
            if not merges:
                break
            for merge in reversed(merges):
                merged = sum(sizes[merge.start : merge.end])
                assert merged <= SETTINGS.segment_bytes
                sizes[merge.start : merge.end] = [merged]
        else:
            pytest.fail("it merges for ever")
        for group, few in itertools.groupby(sizes, lambda size: size * 2 <= SETTINGS.segment_bytes):
            assert not group or len(list(few)) < SETTINGS.merge_segments


def test_segments_below_the_start_are_dropped() -> None:
    assert [segment.base for segment in kept_segments(segments(1, 1, 1), 10)] == [10, 20]
    assert [segment.base for segment in kept_segments(segments(1, 1, 1), 19)] == [10, 20]
