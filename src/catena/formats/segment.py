"""The segment: a long stretch of one partition's log, in one immutable object. What tiering makes of WAL blobs.

    byte 0          magic `CSG1`, length of the JSON header, JSON header: see `sealed_json`
         body_at    the RecordBatches, byte for byte as they were stored, in the order of offsets, without gaps; what
                    a compaction has removed leaves batches with fewer records, or with none: see `thinned`
         index_at   the index: for each interval of the batches 4 numbers, int64, big-endian:
                        offset of its first batch, byte at which that starts, greatest timestamp, CRC-32C of its bytes
         last       the footer, of fixed size: where the index is, its CRC-32C, how many batches there are, and their
                    times; then a CRC-32C of itself and the magic again

    {"version": 1, "cluster_id": "...", "topic": "...", "topic_id": "...", "partition": 0, "base_offset": 0,
     "end_offset": 1000, "created_at_ms": ..., "appended_at_ms": ..., "compaction_id": "...",
     "header_crc32c": "5e6f7a8b"}

Version 2 has one more: `records`, how many there are, because they are fewer than offsets. Releases that do not know of
compaction refuse it.

An interval is whole batches, 64 KiB of them or a little more; the next one starts where it ends. Base offsets inside of
batches are not patched: offsets follow from `base_offset` and from how many each batch takes.

A segment explains itself: with nothing but its bytes one knows whose it is, which offsets it holds and where. A
manifest says the same (`SegmentInfo`), so that readers need neither header nor footer.

Every byte is covered. The header, the index and the footer have a CRC each, and each interval has one in the index;
these four follow each other without gaps, and the footer says where the object ends. The CRC of an interval also covers
what a batch's own CRC leaves out. Whoever writes a segment has checked the batches' own; so readers need not.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from crc32c import crc32c
from msgspec import UNSET, UnsetType

from catena.errors import Corrupt
from catena.formats import sealed_json
from catena.formats.batch_scan import Source, Totals, count_records, scan
from catena.formats.record_batch import HEADER_BYTES, LENGTH_END
from catena.formats.sealed_json import JsonVersion, Natural
from catena.types import Buffer, Offset, TopicId

MAGIC = b"CSG1"
PLAIN, COMPACTED = 1, 2
"""Versions."""
MAX_HEADER_BYTES = 64 << 10
INTERVAL_BYTES = 64 << 10
"""What is read at least, to read one batch."""

_FOOTER = struct.Struct(">QIIqqII4s")
FOOTER_BYTES = _FOOTER.size
_FOOTER_CRC_AT = FOOTER_BYTES - 8
_INDEX_ENTRY_BYTES = 32

_TO_CUT = struct.Struct(">8xi11xi")
"""Of a batch's header: length, last offset delta."""
_MIN_LENGTH = HEADER_BYTES - LENGTH_END

T = TypeVar("T")


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    version: JsonVersion = PLAIN
    cluster_id: str
    topic: str
    topic_id: TopicId
    partition: Natural
    base_offset: Natural
    end_offset: Natural
    """After its last record."""
    created_at_ms: int
    appended_at_ms: int
    """When the newest of its batches was appended to the log; records that have no time of their own count from then.
    Unlike `created_at_ms` it stays the same when segments are merged."""
    compaction_id: str
    """The job that wrote it."""
    records: Natural | UnsetType = UNSET
    """UNSET: one for each offset."""


class SegmentInfo(msgspec.Struct, frozen=True):
    """All that a reader of the segment has to know; a manifest is made of these."""

    key: str
    base: Natural
    end: Natural
    size: Natural
    """Of the whole object."""
    body_at: Natural
    index_at: Natural
    """Where the batches end."""
    index_length: Natural
    index_crc: Natural
    max_timestamp: int
    """As the headers of its batches tell it; -1: none has a time."""
    min_timestamp: int
    """The least time of a batch's first record."""
    batches: Natural
    created_at_ms: int
    appended_at_ms: int
    compaction_id: str
    records: Natural | UnsetType = UNSET
    """UNSET: one for each offset."""

    @property
    def body_bytes(self) -> int:
        return self.index_at - self.body_at

    @property
    def is_compacted(self) -> bool:
        return self.records is not UNSET

    @property
    def record_count(self) -> int:
        return self.end - self.base if self.records is UNSET else self.records


class Encoded(NamedTuple):
    buffers: list[Buffer]
    """The object, in pieces; the bodies are among them, not copied."""
    info: SegmentInfo


class Footer(NamedTuple):
    index_at: int
    index_length: int
    batches: int
    min_timestamp: int
    max_timestamp: int
    index_crc: int


class Interval(NamedTuple):
    """Neighbouring batches that are read together."""

    offset: Offset
    end: Offset
    position: int
    """In the object."""
    length: int
    max_timestamp: int
    crc: int


class SegmentIndex:
    """Which interval holds what. Made by `decode_index`, which has checked it."""

    __slots__ = ("_crcs", "_end", "_index_at", "_offsets", "_positions", "_times")

    def __init__(self, info: SegmentInfo, numbers: array[int]) -> None:
        self._offsets, self._positions = numbers[0::4], numbers[1::4]
        self._times, self._crcs = numbers[2::4], numbers[3::4]
        self._end, self._index_at = info.end, info.index_at

    def __len__(self) -> int:
        return len(self._offsets)

    def find(self, offset: Offset) -> int:
        """Number of the interval that holds `offset`, which must be one of the segment's."""
        return bisect_right(self._offsets, offset) - 1

    def find_byte(self, position: int) -> int:
        """Number of the interval that holds this byte of the object, which must be one of the batches'."""
        return bisect_right(self._positions, position) - 1

    def interval(self, number: int) -> Interval:
        following = number + 1
        is_last = following == len(self._offsets)
        position = self._positions[number]
        return Interval(
            self._offsets[number],
            self._end if is_last else self._offsets[following],
            position,
            (self._index_at if is_last else self._positions[following]) - position,
            self._times[number],
            self._crcs[number],
        )

    def find_time(self, timestamp_ms: int, first: int = 0) -> int | None:
        """Number of the first interval, from number `first` on, with a batch that reaches this time."""
        times = self._times
        return next((number for number in range(first, len(times)) if times[number] >= timestamp_ms), None)

    def find_max_time(self, first: int, after: int) -> int | None:
        """Number of the first interval with the greatest time, among those from `first` up to, not with, `after`."""
        times = self._times[first:after]
        return first + times.index(max(times)) if times else None


def encode(
    key: str,
    header: SegmentHeader,
    bodies: Sequence[Buffer],
    sources: Sequence[Source] = (),
    interval_bytes: int = INTERVAL_BYTES,
) -> Encoded:
    """A segment of these bodies, each of them whole batches, whose CRCs are checked; `key` is where it will be.

    Raises Corrupt if a batch is unsound, or if they don't take all offsets that the header names. `sources` say where
    each body is from.
    """
    json = sealed_json.encode_header(MAGIC, msgspec.json.encode(header))
    if len(json) > sealed_json.FRAME_BYTES + MAX_HEADER_BYTES:
        raise ValueError(f"the header of segment {key} has {len(json)} bytes, more than {MAX_HEADER_BYTES}")
    sources = sources or [Source(f"body {number}") for number in range(len(bodies))]
    found = scan(bodies, sources, header.base_offset, len(json), interval_bytes)
    if found.end != header.end_offset or not found.totals.batches:
        raise Corrupt(
            f"{found.totals.batches} batches from offset {header.base_offset} on end at {found.end}, "
            f"and the segment {key} is to end at {header.end_offset}"
        )
    if header.records is not UNSET and (records := sum(map(count_records, bodies))) != header.records:
        raise Corrupt(f"{records} records for the segment {key}, which is to have {header.records}")
    _to_or_from_big_endian(found.intervals)
    index = found.intervals.tobytes()
    footer = Footer(found.position, len(index), *found.totals, crc32c(index))
    info = describe(key, found.position + len(index) + FOOTER_BYTES, len(json), header, footer)
    return Encoded([json, *bodies, index + _encode_footer(footer)], info)


def describe(key: str, size: int, body_at: int, header: SegmentHeader, footer: Footer) -> SegmentInfo:
    """What a manifest says of a segment whose header, `body_at` bytes long, and footer these are."""
    return SegmentInfo(
        key=key,
        base=header.base_offset,
        end=header.end_offset,
        size=size,
        body_at=body_at,
        index_at=footer.index_at,
        index_length=footer.index_length,
        index_crc=footer.index_crc,
        max_timestamp=footer.max_timestamp,
        min_timestamp=footer.min_timestamp,
        batches=footer.batches,
        created_at_ms=header.created_at_ms,
        appended_at_ms=header.appended_at_ms,
        compaction_id=header.compaction_id,
        records=header.records,
    )


def header_bytes(data: Buffer, what: str = "the segment") -> int:
    """How many bytes from the start are header; the first 8 bytes tell. The batches start there."""
    return sealed_json.header_bytes(data, MAGIC, MAX_HEADER_BYTES, what)


def decode_header(data: Buffer, what: str = "the segment") -> SegmentHeader:
    """The header, checked, of a segment of which `data` is the first part: `header_bytes` of it or more."""
    json = sealed_json.open_header(data, MAGIC, MAX_HEADER_BYTES, what)
    header = sealed_json.decode(json, _HEADER, COMPACTED, what, sealed_json.FRAME_BYTES)
    if header.base_offset >= header.end_offset:
        raise Corrupt(
            f"byte {sealed_json.FRAME_BYTES} of {what}: offsets {header.base_offset} to {header.end_offset} can't be"
        )
    if (header.records is not UNSET) != (header.version >= COMPACTED):
        raise Corrupt(
            f"byte {sealed_json.FRAME_BYTES} of {what}: version {header.version} and records {header.records}"
        )
    return header


def decode_footer(data: Buffer, size: int, what: str = "the segment") -> Footer:
    """The footer, checked, of a segment of `size` bytes, of which `data` is the last part: FOOTER_BYTES or more."""
    at = size - FOOTER_BYTES
    if at < 0 or len(data) < FOOTER_BYTES:
        raise Corrupt(f"byte {size} of {what}: it ends before its footer, which has {FOOTER_BYTES} bytes")
    view = memoryview(data)[-FOOTER_BYTES:]
    *fields, crc, magic = _FOOTER.unpack(view)
    if magic != MAGIC:
        raise Corrupt(f"byte {size - len(MAGIC)} of {what}: it ends with {magic!r}, not {MAGIC!r}: it is cut off")
    if (computed := crc32c(view[:_FOOTER_CRC_AT])) != crc:
        raise Corrupt(f"byte {at} of {what}: its footer has CRC {computed:08x}, and says {crc:08x}")
    footer = Footer(*fields)
    if footer.index_at + footer.index_length != at:
        raise Corrupt(
            f"byte {at} of {what}: the footer starts here, and says that the index ends at "
            f"{footer.index_at + footer.index_length}"
        )
    return footer


def decode_index(info: SegmentInfo, data: Buffer) -> SegmentIndex:
    """The index, checked; `data` is what the segment has from `index_at` on, `index_length` bytes."""
    what = f"byte {info.index_at} of object {info.key}"
    if len(data) != info.index_length or len(data) % _INDEX_ENTRY_BYTES or not data:
        raise Corrupt(f"{what}: an index of {len(data)} bytes, and it is to have {info.index_length}")
    if (computed := crc32c(data)) != info.index_crc:
        raise Corrupt(f"{what}: the index, {len(data)} bytes, has CRC {computed:08x}, and not {info.index_crc:08x}")
    numbers = array("q")
    numbers.frombytes(data)
    _to_or_from_big_endian(numbers)
    offsets, positions = numbers[0::4], numbers[1::4]
    ends = offsets[1:] + array("q", [info.end]), positions[1:] + array("q", [info.index_at])
    starts_right = offsets[0] == info.base and positions[0] == info.body_at
    if not (starts_right and all(map(operator.lt, offsets, ends[0])) and all(map(operator.lt, positions, ends[1]))):
        raise Corrupt(
            f"{what}: the index does not lead from offset {info.base} at byte {info.body_at} "
            f"to offset {info.end} at byte {info.index_at}"
        )
    return SegmentIndex(info, numbers)


def decode_interval(
    key: str, interval: Interval, body: Buffer, make: Callable[[Offset, int, memoryview], T]
) -> list[T]:
    """The batches of an interval of the segment at `key`, checked, as views of `body`.

    Each is what `make` makes of its offset, of how many offsets it takes, and of its bytes.
    """
    if crc32c(body) != interval.crc:
        check_interval(key, interval, body)
        raise AssertionError(f"object {key}, byte {interval.position}: a sound interval was refused")
    view = memoryview(body)
    batches: list[T] = []
    offset, at, last = interval.offset, 0, len(view) - HEADER_BYTES
    unpack = _TO_CUT.unpack_from
    while at <= last:
        length, last_offset_delta = unpack(view, at)
        if length < _MIN_LENGTH:
            break
        end = at + length + LENGTH_END
        count = last_offset_delta + 1
        batches.append(make(offset, count, view[at:end]))
        offset += count
        at = end
    if at != len(view) or offset != interval.end:
        raise _not_as_promised(key, interval, f"at byte {interval.position + at} is offset {offset}")
    return batches


def check_interval(key: str, interval: Interval, body: Buffer) -> Totals:
    """Verify an interval with all its batches; raises Corrupt unless it is all that the index says."""
    found = scan([body], [Source(key, interval.position)], interval.offset, interval.position)
    crc = found.intervals[3] if found.intervals else 0
    is_right = (found.end, len(body), crc) == (interval.end, interval.length, interval.crc)
    if not is_right or found.totals.max_timestamp != interval.max_timestamp:
        raise _not_as_promised(
            key,
            interval,
            f"{len(body)} bytes with CRC {crc:08x} and greatest time {found.totals.max_timestamp} "
            f"end at offset {found.end}",
        )
    return found.totals


def check_totals(info: SegmentInfo, totals: Totals) -> None:
    """Raise Corrupt unless the intervals of the segment, all of them, add up to what its footer says."""
    said = Totals(info.batches, info.min_timestamp, info.max_timestamp)
    if totals != said:
        at = info.size - FOOTER_BYTES
        raise Corrupt(f"byte {at} of object {info.key}: its batches are {totals}, and the footer says {said}")


def check_records(info: SegmentInfo, records: int) -> None:
    """Raise Corrupt unless the batches of the segment, all of them, have so many records."""
    if records != info.record_count:
        why = "by its header" if info.is_compacted else "one for each offset: it was not compacted"
        raise Corrupt(f"object {info.key} has {records} records, and {info.record_count} {why}")


def check(data: Buffer, key: str) -> SegmentInfo:
    """Verify every byte of a whole segment, and every batch; raises Corrupt, naming the place, unless all is right."""
    what = f"object {key}"
    view = memoryview(data)
    header = decode_header(view, what)
    footer = decode_footer(view, len(view), what)
    info = describe(key, len(view), header_bytes(view, what), header, footer)
    index = decode_index(info, view[footer.index_at :][: footer.index_length])
    totals = Totals()
    for number in range(len(index)):
        interval = index.interval(number)
        totals = totals.plus(check_interval(key, interval, view[interval.position :][: interval.length]))
    check_totals(info, totals)
    check_records(info, count_records(view[info.body_at : info.index_at]))
    return info


def _not_as_promised(key: str, interval: Interval, found: str) -> Corrupt:
    return Corrupt(
        f"object {key}, bytes {interval.position} to {interval.position + interval.length - 1} for offset "
        f"{interval.offset}: {found}; but by the index {interval.length} bytes with CRC {interval.crc:08x} "
        f"and greatest time {interval.max_timestamp} end at offset {interval.end}"
    )


def _encode_footer(footer: Footer) -> bytes:
    unsigned = _FOOTER.pack(*footer, 0, MAGIC)[:_FOOTER_CRC_AT]
    return unsigned + crc32c(unsigned).to_bytes(4, "big") + MAGIC


def _to_or_from_big_endian(numbers: array[int]) -> None:
    if sys.byteorder == "little":
        numbers.byteswap()


_HEADER = msgspec.json.Decoder(SegmentHeader)
