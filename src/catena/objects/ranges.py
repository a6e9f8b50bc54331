"""Many ranges of one object in few gets: those that lie close together become one."""

from __future__ import annotations

from collections.abc import Sequence

from catena.objects.base import ObjectStore, Range
from catena.types import Buffer


def coalesce(ranges: Sequence[Range], gap_bytes: int, max_bytes: int) -> list[Range]:
    """Ranges that cover these, fewer where at most `gap_bytes` lie between; none grows beyond `max_bytes` by that."""
    merged: list[Range] = []
    for start, length in sorted(ranges):
        if merged:
            last = merged[-1]
            end = max(last.start + last.length, start + length)
            if start - (last.start + last.length) <= gap_bytes and end - last.start <= max_bytes:
                merged[-1] = Range(last.start, end - last.start)
                continue
        merged.append(Range(start, length))
    return merged


async def read_ranges(
    objects: ObjectStore, key: str, ranges: Sequence[Range], gap_bytes: int, max_bytes: int
) -> list[Buffer]:
    """The bytes of each range: pieces of what was read, which they hold on to."""
    merged = coalesce(ranges, gap_bytes, max_bytes)
    parts = [memoryview(part) for part in await objects.get_ranges(key, merged)]
    pieces: list[Buffer] = [b""] * len(ranges)
    at = 0
    for number in sorted(range(len(ranges)), key=lambda number: ranges[number]):
        start, length = ranges[number]
        while start + length > merged[at].start + merged[at].length:
            at += 1
        pieces[number] = parts[at][start - merged[at].start :][:length]
    return pieces
