from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from catena.formats.manifest import Cleaning, Manifest
from catena.formats.segment import SegmentInfo
from catena.pipeline.compact_plan import (
    MAX_CLEANINGS,
    MAX_PARTS,
    Choice,
    choose,
    cleanings_after,
    divide,
    group,
    tombstones_below,
)
from catena.pipeline.settings import CompactSettings
from catena.types import Offset, TopicId
from catena.virtual_log.topic_configs import settings_of

NOW = 1_000_000
SETTINGS = CompactSettings(group_bytes=1000, group_records=1000, bucket_records=100)
COUNT = 10
"""Offsets of a segment."""


def segments(*sizes: int, records: int | None = None, **changes: Any) -> tuple[SegmentInfo, ...]:
    return tuple(
        SegmentInfo(
            **{
                "key": f"s{number}",
                "base": number * COUNT,
                "end": (number + 1) * COUNT,
                "size": size,
                "body_at": 10,
                "index_at": size - 10,
                "index_length": 5,
                "index_crc": 0,
                "max_timestamp": 100 * (number + 1),
                "min_timestamp": 100 * number,
                "batches": 1,
                "created_at_ms": 0,
                "appended_at_ms": 0,
                "compaction_id": "job",
                "records": UNSET if records is None else records,
                **changes,
            }
        )
        for number, size in enumerate(sizes)
    )


def choice_of(
    infos: tuple[SegmentInfo, ...],
    cleaned: tuple[Cleaning, ...] = (),
    start: Offset = 0,
    now_ms: int = NOW,
    **configs: str,
) -> Choice | None:
    manifest = Manifest(
        version=2,
        cluster_id="c",
        topic="t",
        topic_id=TopicId("0" * 32),
        partition=0,
        base=0,
        end=infos[-1].end,
        segments=infos,
        cleanings=cleaned,
    )
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return choose(manifest, start, now_ms, settings_of({"cleanup.policy": "compact"} | named), SETTINGS)


def keys_of(choice: Choice | None) -> tuple[list[list[str]], list[str]]:
    assert choice is not None
    return [[info.key for info in group] for group in choice.groups], [info.key for info in choice.rest]


class TestWhen:
    def test_a_log_that_was_never_compacted_is_dirty(self) -> None:
        assert keys_of(choice_of(segments(400, 500, 600))) == ([["s0", "s1"], ["s2"]], [])

    @pytest.mark.parametrize(
        ("ratio", "is_due"), [("0", True), ("0.19", True), ("0.2", False), ("0.5", False), ("1", False)]
    )
    def test_enough_has_to_be_dirty(self, ratio: str, is_due: bool) -> None:
        found = choice_of(segments(800, 200), (Cleaning(10, 5),), min_cleanable_dirty_ratio=ratio)
        assert (found is not None) is is_due
        assert found is None or (found.dirty_bytes, found.bytes) == (200, 1000)

    def test_without_a_lag_a_record_from_the_future_keeps_nothing(self) -> None:
        ahead = segments(400, 500, max_timestamp=NOW + 3_000_000)
        assert keys_of(choice_of(ahead)) == ([["s0", "s1"]], [])
        assert choice_of(ahead, min_compaction_lag_ms="1") is None

    def test_nothing_is_due_where_nothing_is_dirty(self) -> None:
        clean = (Cleaning(20, 5),)
        assert choice_of(segments(500, 500), clean, min_cleanable_dirty_ratio="0", max_compaction_lag_ms="1") is None

    @pytest.mark.parametrize(("lag", "is_due"), [(NOW - 100, False), (NOW - 101, True)])
    def test_what_has_waited_too_long_is_due(self, lag: int, is_due: bool) -> None:
        found = choice_of(segments(900, 10), (Cleaning(10, 5),), max_compaction_lag_ms=str(lag))
        assert (found is not None) is is_due

    def test_what_has_no_time_goes_by_when_it_was_appended(self) -> None:
        infos = segments(900, 10, min_timestamp=-1, max_timestamp=-1, appended_at_ms=NOW - 50)
        assert choice_of(infos, (Cleaning(10, 5),), max_compaction_lag_ms="49") is not None
        assert choice_of(infos, (Cleaning(10, 5),), max_compaction_lag_ms="51") is None
        assert choice_of(infos, min_compaction_lag_ms="51") is None
        assert choice_of(infos, min_compaction_lag_ms="50") is not None


class TestWhat:
    def test_young_segments_and_all_behind_them_stay(self) -> None:
        found = choice_of(segments(400, 400, 400), now_ms=1200, min_compaction_lag_ms="1000")
        assert keys_of(found) == ([["s0", "s1"]], ["s2"])

    def test_clean_ones_are_looked_at_however_young_they_are(self) -> None:
        found = choice_of(segments(400, 400, 400, max_timestamp=NOW), (Cleaning(10, 5),), min_compaction_lag_ms="1000")
        assert found is None

    def test_what_the_log_does_not_need_any_more_is_left_out(self) -> None:
        found = choice_of(segments(400, 400, 400), start=15)
        assert keys_of(found) == ([["s1", "s2"]], [])
        assert found is not None
        assert (found.base, found.end) == (10, 30)

    @pytest.mark.parametrize(("records", "buckets"), [(None, 1), (10, 1), (33, 1), (34, 2), (1000, 30)])
    def test_keys_are_divided_by_how_many_records_there_are(self, records: int | None, buckets: int) -> None:
        found = choice_of(segments(100, 100, 100, records=records))
        assert found is not None
        assert found.buckets == buckets

    @given(st.lists(st.tuples(st.integers(50, 1500), st.integers(0, 1500)), min_size=1, max_size=20))
    def test_groups_are_neighbours_and_bounded(self, drawn: list[tuple[int, int]]) -> None:
        infos = tuple(info for size, records in drawn for info in segments(size, records=records))
        groups = list(group(infos, SETTINGS))
        assert [info for each in groups for info in each] == list(infos)
        for each in groups:
            is_small = sum(info.size for info in each) <= 1000 and sum(info.record_count for info in each) <= 1000
            assert len(each) == 1 or is_small


class TestTombstones:
    CLEANED = (Cleaning(10, 100), Cleaning(30, 200), Cleaning(70, 300))

    @pytest.mark.parametrize(
        ("now_ms", "below"), [(0, 0), (149, 0), (150, 10), (249, 10), (250, 30), (350, 70), (9999, 70)]
    )
    def test_they_go_when_all_before_them_were_cleaned_long_ago(self, now_ms: int, below: Offset) -> None:
        assert tombstones_below(self.CLEANED, now_ms, 50) == below

    def test_what_is_dirty_keeps_them(self) -> None:
        found = choice_of(segments(100, 500), (Cleaning(10, 5),), delete_retention_ms="0")
        assert found is not None
        assert found.tombstones_below == 10

    def test_a_cleaning_is_added(self) -> None:
        assert cleanings_after(self.CLEANED, 0, 90, 400) == (*self.CLEANED, Cleaning(90, 400))
        assert cleanings_after((), 5, 90, 400) == (Cleaning(90, 400),)

    def test_those_of_what_is_gone_are_forgotten(self) -> None:
        assert cleanings_after(self.CLEANED, 30, 90, 400) == (Cleaning(70, 300), Cleaning(90, 400))

    def test_a_clock_that_was_set_back_makes_none_go_earlier(self) -> None:
        assert cleanings_after(self.CLEANED, 0, 90, 7)[-1] == Cleaning(90, 300)

    def test_they_are_bounded_and_the_oldest_are_told_as_one_by_the_later_time(self) -> None:
        cleaned: tuple[Cleaning, ...] = ()
        for number in range(1, 2 * MAX_CLEANINGS):
            cleaned = cleanings_after(cleaned, 0, number, number)
        assert len(cleaned) == MAX_CLEANINGS
        assert cleaned[0] == Cleaning(MAX_CLEANINGS, MAX_CLEANINGS)
        assert tombstones_below(cleaned, MAX_CLEANINGS - 1, 0) == 0


class TestParts:
    """What the driver has to know of: groups times buckets."""

    def test_a_log_of_the_usual_size_is_divided_as_the_settings_say(self) -> None:
        groups, buckets = divide(_log(100 << 30), CompactSettings())
        assert (len(groups), buckets) == (800, 269)
        assert len(groups) * buckets <= MAX_PARTS

    @pytest.mark.parametrize("gigabytes", [1, 100, 200, 1000, 10_000])
    def test_they_are_bounded(self, gigabytes: int) -> None:
        infos = _log(gigabytes << 30)
        groups, buckets = divide(infos, CompactSettings())
        assert len(groups) * buckets <= MAX_PARTS
        assert [info for each in groups for info in each] == list(infos)

    def test_both_grow_alike(self) -> None:
        """So that a task of either kind needs as much more as one of the other."""
        groups, buckets = divide(_log(1000 << 30), CompactSettings())
        usual = CompactSettings()
        records = sum(info.record_count for info in _log(1000 << 30))
        group_grows = max(sum(info.size for info in each) for each in groups) / usual.group_bytes
        bucket_grows = records / buckets / usual.bucket_records
        assert group_grows == 16
        assert 15 < bucket_grows <= 16


def _log(size: int, segment: int = 128 << 20, record: int = 200) -> tuple[SegmentInfo, ...]:
    """Of so many bytes."""
    count = segment // record
    return tuple(
        msgspec.structs.replace(each, base=number * count, end=(number + 1) * count)
        for number, each in enumerate(segments(*[segment] * (size // segment)))
    )
