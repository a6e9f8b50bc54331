"""Read the batches of segments a little at a time: so a task holds some megabytes, however large a segment is."""

from __future__ import annotations

from collections.abc import AsyncIterator

from catena.formats import segment as segments
from catena.formats.segment import Interval, SegmentIndex, SegmentInfo
from catena.objects.base import ObjectStore, Range
from catena.types import Buffer, Offset

READ_BYTES = 16 << 20


async def read_bodies(
    objects: ObjectStore, info: SegmentInfo, max_bytes: int = READ_BYTES
) -> AsyncIterator[tuple[Offset, int, Buffer]]:
    """Whole batches, about so many bytes at a time: the offset of the first, where in the object it is, the bytes."""
    (data,) = await objects.get_ranges(info.key, [Range(info.index_at, info.index_length)])
    index = segments.decode_index(info, data)
    number = 0
    while number < len(index):
        intervals = neighbours(index, number, max_bytes)
        first, last = intervals[0], intervals[-1]
        wanted = Range(first.position, last.position + last.length - first.position)
        (body,) = await objects.get_ranges(info.key, [wanted])
        yield first.offset, first.position, body
        number += len(intervals)


def neighbours(index: SegmentIndex, number: int, max_bytes: int) -> list[Interval]:
    """Intervals from this one on that are read with one call; one that is larger alone."""
    intervals = [index.interval(number)]
    size = intervals[0].length
    for following in range(number + 1, len(index)):
        interval = index.interval(following)
        size += interval.length
        if size > max_bytes:
            break
        intervals.append(interval)
    return intervals
