"""Check stored RecordBatches in bulk, and note what an index of them needs.

A loop over batches, with two CRCs for each byte: the batch's own, and that of the interval of neighbouring batches it
belongs to, which also covers what a batch's own leaves out. Of a header only what is needed is unpacked: parsing all of
it takes longer than the CRC of a small batch, and whoever stored a batch has looked at all of it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from catena.errors import Corrupt, InvalidBatch
from catena.formats.record_batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    check_crc,
    parse_header,
)
from catena.formats.records import NO_TIMESTAMP
from catena.types import Buffer, Offset

_NEEDED = struct.Struct(">8xi4xbIhiqq")
"""Length, magic, CRC, attributes, last offset delta, base and max timestamp."""
_COUNT = struct.Struct(">8xi45xi")
"""Length, record count."""
_MIN_LENGTH = HEADER_BYTES - LENGTH_END


class Source(NamedTuple):
    """Where a body was read from; errors name it."""

    key: str
    start: int = 0
    """In the object."""


class Totals(NamedTuple):
    """What batches add up to."""

    batches: int = 0
    min_timestamp: int = NO_TIMESTAMP
    """The least time of a batch's first record, as headers tell it; -1: none has a time."""
    max_timestamp: int = NO_TIMESTAMP

    def plus(self, other: Totals) -> Totals:
        known = [time for time in (self.min_timestamp, other.min_timestamp) if time != NO_TIMESTAMP]
        return Totals(
            self.batches + other.batches,
            min(known, default=NO_TIMESTAMP),
            max(self.max_timestamp, other.max_timestamp),
        )


class Scan(NamedTuple):
    intervals: array[int]
    """4 numbers for each: offset of its first batch, byte at which that stands, greatest timestamp, CRC-32C."""
    totals: Totals
    end: Offset
    """After the last batch."""
    position: int
    """After its last byte."""


def scan(
    bodies: Sequence[Buffer],
    sources: Sequence[Source],
    offset: Offset,
    position: int = 0,
    interval_bytes: int = sys.maxsize,
) -> Scan:
    """Check batches, of which the first has this offset and stands at this byte; raises Corrupt if one is unsound.

    A body is whole batches. An interval ends with the batch that gives it `interval_bytes`; it may go over bodies.
    """
    intervals = array("q")
    unpack = _NEEDED.unpack_from
    count = 0
    oldest, newest = sys.maxsize, NO_TIMESTAMP
    # Of the interval that is under way: its first offset and byte, greatest time, and CRC so far.
    first, start, newest_here, crc = offset, position, NO_TIMESTAMP, 0
    for body, source in zip(bodies, sources, strict=True):
        view = memoryview(body)
        size = len(view)
        at = not_in_crc = 0
        while at < size:
            if size - at < HEADER_BYTES:
                raise _unsound(view, at, offset, source)
            length, magic, stored, attributes, last_offset_delta, base_time, max_time = unpack(view, at)
            end = at + length + LENGTH_END
            is_whole = length >= _MIN_LENGTH and end <= size and magic == MAGIC and last_offset_delta >= 0
            if not is_whole or crc32c(view[at + CRC_START : end]) != stored:
                raise _unsound(view, at, offset, source)
            if max_time > newest_here:
                newest_here = max_time
            if attributes & LOG_APPEND_TIME:
                base_time = max_time
            if NO_TIMESTAMP < base_time < oldest:
                oldest = base_time
            count += 1
            offset += last_offset_delta + 1
            at = end
            if position + at - start >= interval_bytes:
                intervals.extend((first, start, newest_here, crc32c(view[not_in_crc:at], crc)))
                newest = max(newest, newest_here)
                first, start, newest_here, crc = offset, position + at, NO_TIMESTAMP, 0
                not_in_crc = at
        crc = crc32c(view[not_in_crc:], crc)
        position += size
    if position > start:
        intervals.extend((first, start, newest_here, crc))
        newest = max(newest, newest_here)
    return Scan(intervals, Totals(count, NO_TIMESTAMP if oldest == sys.maxsize else oldest, newest), offset, position)


def count_records(body: Buffer) -> int:
    """How many records these sound batches hold: fewer than offsets, where a compaction has removed some."""
    at, count, size = 0, 0, len(body)
    unpack = _COUNT.unpack_from
    while at < size:
        length, records = unpack(body, at)
        count += records
        at += length + LENGTH_END
    return count


def _unsound(view: memoryview, at: int, offset: Offset, source: Source) -> Corrupt:
    """What is wrong with the batch at byte `at`, told by those who look at all of it."""
    batch = view[at:]
    try:
        check_crc(batch, parse_header(batch))
    except InvalidBatch as error:
        return Corrupt(f"object {source.key}, the batch at byte {source.start + at} for offset {offset}: {error}")
    raise AssertionError(f"object {source.key}, byte {source.start + at}: a sound batch was refused")
