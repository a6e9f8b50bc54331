"""What to read: from options, offsets of a stream and the logs as they are now, to ranges of offsets. Pure.

The rules are those of Spark's Kafka source. What can't be read any more is a loss, and each is told in words: whoever
asked decides whether that is an error (`failOnDataLoss`). Losses are

- offsets below the start of a log, which were trimmed, and those beyond its end, which are not there (yet);
- a partition or a topic that is gone, or that is not asked for any more;
- a topic that was deleted and created again, which has another id: it is read from its beginning;
- a partition that was added since, and whose first records are trimmed already.

A partition that was added is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from catena.errors import ConfigError
from catena.source.offsets import StreamOffsets, TopicOffsets
from catena.source.options import EARLIEST, LATEST, AtOffsets, AtTime, AtTimes, Edge, Limit
from catena.types import Offset, TopicId, TopicPartition

MAX_NAMED = 5


class Bounds(NamedTuple):
    """The log of a partition: its first offset, and the one after its last."""

    start: Offset
    tail: Offset

    def clamp(self, offset: Offset) -> Offset:
        return max(self.start, min(offset, self.tail))


class TopicView(NamedTuple):
    """A topic as it is now; those of its partitions that are asked for."""

    id: TopicId
    partitions: Mapping[int, Bounds]


View: TypeAlias = Mapping[str, TopicView]


class OffsetRange(NamedTuple):
    """Of one partition, up to and not including `end`."""

    tp: TopicPartition
    start: Offset
    end: Offset

    @property
    def size(self) -> int:
        return self.end - self.start


class Resolved(NamedTuple):
    offsets: Mapping[TopicPartition, Offset]
    losses: list[str]


class Planned(NamedTuple):
    ranges: list[OffsetRange]
    """None of them empty."""
    losses: list[str]


def all_bounds(view: View) -> Iterator[tuple[TopicPartition, Bounds]]:
    for name, topic in sorted(view.items()):
        for number, bounds in sorted(topic.partitions.items()):
            yield TopicPartition(name, topic.id, number), bounds


def times_to_find(limit: Limit, view: View) -> dict[TopicPartition, int]:
    """The time whose first record has to be known, of each partition, before `resolve` can be asked."""
    match limit.position:
        case AtTime(time_ms):
            return {tp: time_ms for tp, _ in all_bounds(view)}
        case AtTimes(times_ms):
            _check_complete(limit.option, times_ms, view)
            return {tp: times_ms[tp.topic][tp.partition] for tp, _ in all_bounds(view)}
        case _:
            return {}


def resolve(
    limit: Limit, view: View, found: Mapping[TopicPartition, Offset | None], must_match: bool = False
) -> Resolved:
    """Where each partition's read begins or ends. `found`: the first offset at the times that were to be found.

    Where nothing was found it is the end of the log, or an error if something `must_match`.
    """
    match limit.position:
        case Edge.EARLIEST:
            return Resolved({tp: bounds.start for tp, bounds in all_bounds(view)}, [])
        case Edge.LATEST:
            return Resolved({tp: bounds.tail for tp, bounds in all_bounds(view)}, [])
        case AtOffsets(offsets):
            return _resolve_offsets(limit.option, offsets, view)
    at: dict[TopicPartition, Offset] = {}
    for tp, bounds in all_bounds(view):
        offset = found[tp]
        if offset is None and must_match:
            raise ConfigError(
                f"option {limit.option}: {tp} has no record at or after the time that was given; "
                "with startingOffsetsByTimestampStrategy=latest it is read from its end on"
            )
        at[tp] = bounds.tail if offset is None else bounds.clamp(offset)
    return Resolved(at, [])


def _resolve_offsets(option: str, offsets: Mapping[str, Mapping[int, int]], view: View) -> Resolved:
    _check_complete(option, offsets, view)
    at: dict[TopicPartition, Offset] = {}
    losses: list[str] = []
    for tp, bounds in all_bounds(view):
        offset = offsets[tp.topic][tp.partition]
        if offset in (EARLIEST, LATEST):
            at[tp] = bounds.start if offset == EARLIEST else bounds.tail
            continue
        at[tp] = bounds.clamp(offset)
        if at[tp] != offset:
            losses.append(f"option {option}: offset {offset} of {tp} is outside of its log, {_shown(bounds)}")
    return Resolved(at, losses)


def _check_complete(option: str, given: Mapping[str, Mapping[int, int]], view: View) -> None:
    named = {(topic, number) for topic, numbers in given.items() for number in numbers}
    asked = {(tp.topic, tp.partition) for tp, _ in all_bounds(view)}
    if named != asked:
        problems = [
            f"{said} {', '.join(f'{topic}/{number}' for topic, number in places[:MAX_NAMED])}"
            + (" and others" if len(places) > MAX_NAMED else "")
            for said, places in (
                ("it does not name", sorted(asked - named)),
                ("it names, and the query does not read,", sorted(named - asked)),
            )
            if places
        ]
        told = "; ".join(problems)
        raise ConfigError(f"option {option} has to name each partition that is read, and no other: {told}")


def plan_batch(starts: Resolved, ends: Resolved) -> Planned:
    """A partition whose end is not behind its start has nothing to read: times are often given so."""
    ranges = [
        OffsetRange(tp, start, ends.offsets[tp]) for tp, start in starts.offsets.items() if start < ends.offsets[tp]
    ]
    return Planned(ranges, starts.losses + ends.losses)


def stream_offsets(at: Mapping[TopicPartition, Offset]) -> StreamOffsets:
    topics: dict[str, TopicOffsets] = {}
    for tp, offset in at.items():
        topics.setdefault(tp.topic, TopicOffsets(tp.topic_id, {})).partitions[tp.partition] = offset
    return StreamOffsets(topics)


def tails(view: View) -> StreamOffsets:
    return stream_offsets({tp: bounds.tail for tp, bounds in all_bounds(view)})


def capped(view: View, target: StreamOffsets, start: StreamOffsets) -> View:
    """The view as if nothing had come after `target`: what a query that ends there may see, and has not seen before.

    A stream may be beyond it: where it begins at the latest record, that is found after the target.
    """

    def cap(tp: TopicPartition) -> Offset | None:
        return max((at for at in (target.find(*tp), start.find(*tp)) if at is not None), default=None)

    return {
        name: TopicView(
            topic.id,
            {
                number: Bounds(min(bounds.start, last), min(bounds.tail, last))
                for number, bounds in topic.partitions.items()
                if (last := cap(TopicPartition(name, topic.id, number))) is not None
            },
        )
        for name, topic in view.items()
    }


def advance(start: StreamOffsets, view: View, max_offsets: int | None) -> StreamOffsets:
    """How far the next batch goes. `max_offsets` are shared out in proportion to what each partition has.

    One that has something gets one at least, so that a small one does not starve: there may be a few more in all.
    """
    begins = {tp: _begin(start, tp, bounds) for tp, bounds in all_bounds(view)}
    waiting = {tp: bounds.tail - begins[tp] for tp, bounds in all_bounds(view)}
    total = sum(waiting.values())
    if max_offsets is None or total <= max_offsets:
        return tails(view)
    return stream_offsets(
        {
            tp: begins[tp] + (min(size, max(1, max_offsets * size // total)) if size else 0)
            for tp, size in waiting.items()
        }
    )


def _begin(start: StreamOffsets, tp: TopicPartition, bounds: Bounds) -> Offset:
    at = start.find(*tp)
    return bounds.start if at is None else bounds.clamp(at)


def plan_stream(start: StreamOffsets, end: StreamOffsets, view: View) -> Planned:
    """What lies between, as far as it can be read now. The same batch may be asked for again, long after."""
    planned = Planned([], [])
    for name in sorted(start.topics.keys() - end.topics.keys()):
        planned.losses.append(f"topic {name} is gone, or not asked for any more, and with it whatever was not read yet")
    for name, topic in sorted(end.topics.items()):
        before = start.topics.get(name)
        if before is not None and before.id != topic.id:
            planned.losses.append(f"topic {name} was deleted and created again; the new one is read from its beginning")
            before = TopicOffsets(topic.id, {})
            is_new = True
        else:
            is_new = before is None
        _plan_topic(name, before or TopicOffsets(topic.id, {}), topic, view.get(name), is_new, planned)
    return planned


def _plan_topic(
    name: str, before: TopicOffsets, topic: TopicOffsets, now: TopicView | None, is_new: bool, planned: Planned
) -> None:
    gone = sorted(before.partitions.keys() - topic.partitions.keys())
    if gone:
        planned.losses.append(f"partitions {', '.join(map(str, gone))} of topic {name} are not read any more")
    for number, end in sorted(topic.partitions.items()):
        tp = TopicPartition(name, topic.id, number)
        start = before.partitions.get(number)
        if start == end:
            continue  # nothing is to be read; if it can't be any more, the batch after this one finds out
        bounds = now.partitions.get(number) if now is not None and now.id == topic.id else None
        if bounds is None:
            planned.losses.append(f"{tp} is gone: its records up to offset {end} can't be read")
            continue
        if start is None:
            start = bounds.start
            if start > 0:
                added = "new" if is_new else "added"
                planned.losses.append(f"{tp} is {added} and starts at {start} instead of 0: the first were trimmed")
        _plan_partition(tp, start, end, bounds, planned)


def _plan_partition(tp: TopicPartition, start: Offset, end: Offset, bounds: Bounds, planned: Planned) -> None:
    if end < start:
        planned.losses.append(f"{tp} went back from offset {start} to {end}: its last records are gone, or never were")
        return
    if start < bounds.start:
        planned.losses.append(
            f"{tp} was trimmed: its offsets {start} to {min(end, bounds.start) - 1} can't be read, {_shown(bounds)}"
        )
    if end > bounds.tail:
        planned.losses.append(
            f"{tp} went back: its offsets {max(start, bounds.tail)} to {end - 1} can't be read, {_shown(bounds)}"
        )
    found = OffsetRange(tp, max(start, bounds.start), min(end, bounds.tail))
    if found.size > 0:
        planned.ranges.append(found)


def _shown(bounds: Bounds) -> str:
    return f"which holds {bounds.start} up to (not including) {bounds.tail}"
