"""Ranges of offsets become splits, the work of one task each. Pure.

As with Spark's Kafka source, `minPartitions` cuts large ranges by their offsets, in proportion and about so many in
all; `maxRecordsPerPartition` cuts what has more. Beyond that, a split has a bounded number of bytes and of extents, so
that many tasks can share a long log, and a task's description stays small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from catena.errors import Corrupt
from catena.loglets.base import Extent
from catena.source.planning import OffsetRange
from catena.types import Offset, TopicId, TopicPartition

SPLIT_BYTES = 128 << 20
"""As Spark cuts files."""
SPLIT_EXTENTS = 1000


class Split(msgspec.Struct, frozen=True):
    """What one task reads: the records from `start` up to `end` that are in these extents, which may hold more."""

    topic: str
    topic_id: TopicId
    partition: int
    start: Offset
    end: Offset
    extents: tuple[Extent, ...]

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.topic_id, self.partition)


def cut_by_offsets(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Ranges that are not empty, cut into more; their order stays."""
    if max_records is not None:
        ranges = [part for each in ranges for part in _divide(each, -(-each.size // max_records))]
    if min_partitions is None or len(ranges) >= min_partitions:
        return list(ranges)
    total = sum(each.size for each in ranges)
    small = [each for each in ranges if _share(each.size, total, min_partitions) == 1]
    # Small ones stay whole and leave the rest of the parts to the large ones.
    total_of_large = total - sum(each.size for each in small)
    parts_of_large = max(min_partitions - len(small), 1)
    whole = set(small)
    return [
        part
        for each in ranges
        for part in _divide(each, 1 if each in whole else _share(each.size, total_of_large, parts_of_large))
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Of the parts, rounded to the nearest; a range can't have more than it has offsets."""
    return min(size, max((2 * size * parts + total) // (2 * total), 1))


def _divide(each: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    start = each.start
    for part in range(parts):
        end = start + (each.end - start) // (parts - part)
        yield each._replace(start=start, end=end)
        start = end


def cut_by_extents(
    ranges: Sequence[OffsetRange],
    extents: Sequence[Extent],
    max_bytes: int = SPLIT_BYTES,
    max_extents: int = SPLIT_EXTENTS,
) -> list[Split]:
    """Splits of neighbouring ranges of one partition. `extents` hold all of it, without a gap."""
    splits: list[Split] = []
    first = 0
    for each in ranges:
        while first < len(extents) and extents[first].end <= each.start:
            first += 1
        splits += _cut(each, extents, first, max_bytes, max_extents)
    return splits


def _cut(each: OffsetRange, extents: Sequence[Extent], first: int, max_bytes: int, max_extents: int) -> Iterator[Split]:
    start = following = each.start
    taken: list[Extent] = []
    size = 0
    for number in range(first, len(extents)):
        extent = extents[number]
        if extent.offset >= each.end:
            break
        if not extent.offset <= following < extent.end:
            raise Corrupt(f"{each.tp}: offset {following} is in no extent; the next one begins at {extent.offset}")
        length = extent.length or 0
        if taken and (size + length > max_bytes or len(taken) == max_extents):
            yield _split(each, start, following, taken)
            start, taken, size = following, [], 0
        taken.append(extent)
        size += length
        following = extent.end
    if following < each.end:
        raise Corrupt(f"{each.tp}: offset {following} is in no extent")
    yield _split(each, start, each.end, taken)


def _split(each: OffsetRange, start: Offset, end: Offset, extents: Sequence[Extent]) -> Split:
    return Split(each.tp.topic, each.tp.topic_id, each.tp.partition, start, end, tuple(extents))
