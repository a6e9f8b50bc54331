"""What is read, whatever happens to the logs: each record once, and whatever is not read is told."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catena.errors import ConfigError
from catena.source import planning
from catena.source.offsets import StreamOffsets, TopicOffsets
from catena.source.options import AtOffsets, AtTime, AtTimes, Edge, Limit
from catena.source.planning import Bounds, OffsetRange, Planned, Resolved, TopicView, View
from catena.types import TopicId, TopicPartition

EARLIEST, LATEST = Limit("startingOffsets", Edge.EARLIEST), Limit("startingOffsets", Edge.LATEST)


def tp(topic: str, number: int = 0, topic_id: str = "1") -> TopicPartition:
    return TopicPartition(topic, TopicId(topic_id), number)


def at(topic_id: str = "1", /, **topics: dict[int, int]) -> StreamOffsets:
    return StreamOffsets({name: TopicOffsets(TopicId(topic_id), numbers) for name, numbers in topics.items()})


def view_of(topic_id: str = "1", /, **topics: dict[int, tuple[int, int]]) -> View:
    return {
        name: TopicView(TopicId(topic_id), {number: Bounds(*bounds) for number, bounds in numbers.items()})
        for name, numbers in topics.items()
    }


class Event(NamedTuple):
    kind: str
    topic: str
    number: int
    amount: int


class Logs:
    """Topics that change as a cluster's do."""

    def __init__(self) -> None:
        self._ids = 0
        self.topics: dict[str, tuple[str, dict[int, tuple[int, int]]]] = {}
        self.was_anything_lost = False

    def happen(self, event: Event) -> None:
        if event.topic not in self.topics:
            self._ids += 1
            self.topics[event.topic] = f"{self._ids}", {0: (0, event.amount)}
            return
        numbers = self.topics[event.topic][1]
        number = event.number % len(numbers)
        start, tail = numbers[number]
        match event.kind:
            case "append":
                numbers[number] = start, tail + event.amount
            case "add a partition":
                numbers[len(numbers)] = 0, event.amount
            case "trim":
                self.was_anything_lost = True
                numbers[number] = min(tail, start + event.amount), tail
            case "delete":
                self.was_anything_lost = True
                del self.topics[event.topic]
            case "create again":
                self.was_anything_lost = True
                del self.topics[event.topic]
                self.happen(event)

    def view(self) -> View:
        return {
            name: TopicView(TopicId(topic_id), {number: Bounds(*bounds) for number, bounds in numbers.items()})
            for name, (topic_id, numbers) in self.topics.items()
        }


class Stream:
    """What a query with failOnDataLoss=false reads, batch by batch."""

    def __init__(self, start: StreamOffsets, max_offsets: int | None) -> None:
        self.start = self.at = start
        self.max_offsets = max_offsets
        self.read: dict[TopicPartition, list[tuple[int, int]]] = {}
        self.losses: list[str] = []

    def plan(self, view: View, target: StreamOffsets | None = None) -> StreamOffsets:
        seen = view if target is None else planning.capped(view, target, self.at)
        end = planning.advance(self.at, seen, self.max_offsets)
        waiting = sum(
            bounds.tail - bounds.clamp(found if (found := self.at.find(*tp)) is not None else 0)
            for tp, bounds in planning.all_bounds(seen)
        )
        moved = sum(
            (end.find(*tp) or 0) - bounds.clamp(found if (found := self.at.find(*tp)) is not None else 0)
            for tp, bounds in planning.all_bounds(seen)
        )
        partitions = len(list(planning.all_bounds(seen)))
        assert moved == waiting if self.max_offsets is None else moved <= self.max_offsets + partitions
        assert moved > 0 or not waiting
        return end

    def take(self, end: StreamOffsets, view: View) -> None:
        planned = planning.plan_stream(self.at, end, view)
        for each in planned.ranges:
            assert each.size > 0
            bounds = view[each.tp.topic].partitions[each.tp.partition]
            assert bounds.start <= each.start < each.end <= bounds.tail
            before = self.read.setdefault(each.tp, [])
            assert not before or before[-1][1] <= each.start, "read twice"
            before.append((each.start, each.end))
        self.losses += planned.losses
        self.at = end

    def drain(self, logs: Logs, target: StreamOffsets | None = None) -> None:
        for _ in range(10_000):
            end = self.plan(logs.view(), target)
            if end == self.at:
                return
            self.take(end, logs.view())
        raise AssertionError("it never ends")

    def check_complete(self, view: View) -> None:
        """All that is there, from where it began, was read."""
        for place, bounds in planning.all_bounds(view):
            begin = self.start.find(*place)
            missing = set(range(max(bounds.start, begin or 0), bounds.tail))
            for start, end in self.read.get(place, []):
                missing -= set(range(start, end))
            assert not missing, f"{place}: {sorted(missing)[:5]}"


kinds = st.sampled_from(["append"] * 6 + ["add a partition", "trim", "delete", "create again"])
events = st.builds(Event, kinds, st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 30))
event_lists = st.lists(events, max_size=4)
limits = st.none() | st.integers(1, 40)


@settings(max_examples=300)
@given(event_lists, st.booleans(), limits, st.lists(st.tuples(event_lists, event_lists), max_size=8))
def test_a_stream_reads_each_record_once_and_tells_what_it_can_not(
    before: list[Event], from_earliest: bool, max_offsets: int | None, steps: list[tuple[list[Event], list[Event]]]
) -> None:
    logs = Logs()
    for event in before:
        logs.happen(event)
    logs.was_anything_lost = False
    began = planning.resolve(EARLIEST if from_earliest else LATEST, logs.view(), {})
    assert not began.losses
    stream = Stream(planning.stream_offsets(began.offsets), max_offsets)
    for earlier, meanwhile in steps:
        for event in earlier:
            logs.happen(event)
        end = stream.plan(logs.view())
        for event in meanwhile:
            logs.happen(event)
        stream.take(end, logs.view())
    stream.drain(logs)
    stream.check_complete(logs.view())
    assert logs.was_anything_lost or not stream.losses
    if not stream.losses:
        for place, parts in stream.read.items():
            assert [end for _, end in parts[:-1]] == [start for start, _ in parts[1:]], f"a gap in {place}"


@given(event_lists, event_lists, event_lists, limits, st.booleans())
def test_a_query_that_ends_where_it_was_told_ends(
    before: list[Event], since: list[Event], later: list[Event], max_offsets: int | None, begins_late: bool
) -> None:
    logs = Logs()
    for event in before:
        logs.happen(event)
    stream = Stream(planning.stream_offsets(planning.resolve(EARLIEST, logs.view(), {}).offsets), max_offsets)
    for event in since:
        logs.happen(event)
    target = planning.tails(logs.view())
    for event in later:
        logs.happen(event)
    if begins_late:
        stream.at = planning.tails(logs.view())
        assert stream.plan(logs.view(), target) == stream.at
    stream.drain(logs, target)
    for place, parts in stream.read.items():
        last = target.find(*place)
        assert last is not None
        assert all(end <= last for _, end in parts)


@given(st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5))
def test_a_batch_reads_between_its_limits(numbers: dict[int, tuple[int, int]]) -> None:
    view = view_of(a=dict.fromkeys(numbers, (0, 50)))
    starts = Resolved({tp("a", number): start for number, (start, _) in numbers.items()}, ["one"])
    ends = Resolved({tp("a", number): end for number, (_, end) in numbers.items()}, ["two"])
    planned = planning.plan_batch(starts, ends)
    assert planned.losses == ["one", "two"]
    read = {each.tp.partition: set(range(each.start, each.end)) for each in planned.ranges}
    assert all(read.values())
    for number, (start, end) in numbers.items():
        assert read.get(number, set()) == set(range(start, end))
    assert len(list(planning.all_bounds(view))) == len(numbers)


def test_small_partitions_do_not_starve_and_large_ones_get_their_share() -> None:
    view = view_of(a={0: (0, 1000), 1: (0, 100), 2: (0, 1), 3: (5, 5)})
    end = planning.advance(at(a={0: 0, 1: 0, 2: 0, 3: 5}), view, 110)
    assert end == at(a={0: 99, 1: 9, 2: 1, 3: 5})
    assert planning.advance(at(a={0: 0}), view, None) == at(a={0: 1000, 1: 100, 2: 1, 3: 5})


def test_what_was_trimmed_takes_no_share_of_a_batch() -> None:
    assert planning.advance(at(a={0: 0}), view_of(a={0: (100, 130)}), 10) == at(a={0: 110})


@pytest.mark.parametrize(
    ("start", "end", "view", "ranges", "told"),
    [
        (at(a={0: 2}), at(a={0: 5}), view_of(a={0: (0, 9)}), [(0, 2, 5)], None),
        (at(a={0: 2}), at(a={0: 5}), view_of(a={0: (3, 9)}), [(0, 3, 5)], "a/0 was trimmed: its offsets 2 to 2"),
        (at(a={0: 2}), at(a={0: 5}), view_of(a={0: (8, 9)}), [], "a/0 was trimmed: its offsets 2 to 4"),
        (at(a={0: 2}), at(a={0: 5}), view_of(a={0: (0, 4)}), [(0, 2, 4)], "a/0 went back: its offsets 4 to 4"),
        (at(a={0: 5}), at(a={0: 2}), view_of(a={0: (0, 2)}), [], "a/0 went back from offset 5 to 2"),
        (at(a={0: 2}), at(a={0: 2}), view_of(a={0: (3, 9)}), [], None),
        (at(a={0: 2}), at(a={0: 2, 1: 4}), view_of(a={0: (0, 2), 1: (0, 9)}), [(1, 0, 4)], None),
        (at(a={0: 2}), at(a={0: 2, 1: 4}), view_of(a={0: (0, 2), 1: (1, 9)}), [(1, 1, 4)], "a/1 is added"),
        (at(a={0: 2, 1: 3}), at(a={0: 2}), view_of(a={0: (0, 2)}), [], "partitions 1 of topic a are not read any more"),
        (at(a={0: 2}), at(), view_of(), [], "topic a is gone"),
        (at(), at(a={0: 3}), view_of(a={0: (1, 9)}), [(0, 1, 3)], "a/0 is new and starts at 1 instead of 0"),
        (at(a={0: 2}), at(a={0: 5}), view_of(), [], "a/0 is gone: its records up to offset 5"),
        (at(a={0: 2}), at(a={0: 5}), view_of("2", a={0: (0, 9)}), [], "a/0 is gone"),
        (at("0", a={0: 7}), at(a={0: 5}), view_of(a={0: (0, 9)}), [(0, 0, 5)], "topic a was deleted and created again"),
    ],
)
def test_what_is_lost_is_told(
    start: StreamOffsets, end: StreamOffsets, view: View, ranges: list[tuple[int, int, int]], told: str | None
) -> None:
    expected = [OffsetRange(tp("a", number), first, last) for number, first, last in ranges]
    planned = planning.plan_stream(start, end, view)
    assert planned == Planned(expected, planned.losses)
    assert len(planned.losses) == (told is not None)
    assert told is None or planned.losses[0].startswith(told)


def test_offsets_are_resolved_and_what_is_outside_is_told() -> None:
    view = view_of(a={0: (3, 9), 1: (3, 9), 2: (3, 9), 3: (3, 9), 4: (3, 9)})
    limit = Limit("startingOffsets", AtOffsets({"a": {0: -2, 1: -1, 2: 5, 3: 1, 4: 12}}))
    resolved = planning.resolve(limit, view, {})
    assert resolved.offsets == {tp("a", number): offset for number, offset in enumerate([3, 9, 5, 3, 9])}
    assert len(resolved.losses) == 2
    assert "offset 1 of a/3 is outside of its log, which holds 3 up to (not including) 9" in resolved.losses[0]


def test_each_partition_has_to_be_named_and_no_other() -> None:
    view = view_of(a={0: (0, 9), 1: (0, 9)})
    told = r"option o .* does not name a/1; it names, and the query does not read, a/2"
    with pytest.raises(ConfigError, match=told):
        planning.resolve(Limit("o", AtOffsets({"a": {0: 1, 2: 1}})), view, {})
    with pytest.raises(ConfigError, match=told):
        planning.times_to_find(Limit("o", AtTimes({"a": {0: 1, 2: 1}})), view)


def test_times_are_resolved() -> None:
    view = view_of(a={0: (3, 9), 1: (3, 9)})
    limit = Limit("startingTimestamp", AtTime(1000))
    assert planning.times_to_find(limit, view) == {tp("a", 0): 1000, tp("a", 1): 1000}
    each = Limit("startingOffsetsByTimestamp", AtTimes({"a": {0: 1, 1: 2}}))
    assert planning.times_to_find(each, view) == {tp("a", 0): 1, tp("a", 1): 2}
    found = {tp("a", 0): 12, tp("a", 1): None}
    assert planning.resolve(limit, view, found).offsets == {tp("a", 0): 9, tp("a", 1): 9}
    with pytest.raises(ConfigError, match="option startingTimestamp: a/1 has no record at or after"):
        planning.resolve(limit, view, found, must_match=True)
    assert planning.times_to_find(EARLIEST, view) == {}
