"""The walk over records without a compiler: see `fields`.

Where a record begins only the one before it can tell, so a plain loop hops from length to length. All else is done for
all records at once, field by field: numpy reads the n-th number of every record, checks it, and goes on behind it.
"""

from __future__ import annotations

import numpy as np

from catena.columns.fields import Fields, HeaderFields, Spans
from catena.columns.varints import Bytes, Ints, Unsound, read
from catena.formats.varint import INT32_BYTES, INT64_BYTES, read_int32

FEW = 32
"""Up to so many, records are faster to go through one by one than all at once."""


def walk(data: Bytes, spans: Spans) -> Fields:
    starts = _record_starts(data, spans)
    filled = np.flatnonzero(spans.record_count)
    last = np.cumsum(spans.record_count)[filled] - 1
    first = last + 1 - spans.record_count[filled]
    length, at = read(data, starts, INT32_BYTES)
    end = at + length
    following = np.append(starts[1:], starts[:1])
    following[last] = spans.end[filled]
    _refuse_if(end != following)
    time_delta, at = read(data, at + 1, INT64_BYTES)
    offset_delta, at = read(data, at, INT32_BYTES)
    key_size, key_at = read(data, at, INT32_BYTES)
    value_size, value_at = read(data, key_at + np.maximum(key_size, 0), INT32_BYTES)
    header_count, at = read(data, value_at + np.maximum(value_size, 0), INT32_BYTES)
    _refuse_if((key_size < -1) | (value_size < -1) | (header_count < 0) | (header_count > end - at))
    headers, at = _read_headers(data, at, header_count)
    _refuse_if(at != end)
    grows = np.diff(offset_delta, prepend=-1) > 0
    grows[first] = offset_delta[first] >= 0
    _refuse_if(~grows)
    _refuse_if(offset_delta[last] > spans.last_delta[filled])
    return Fields(end, time_delta, offset_delta, key_at, key_size, value_at, value_size, header_count, headers)


def _refuse_if(is_unsound: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    if is_unsound.any():
        raise Unsound


def _record_starts(data: Bytes, spans: Spans) -> Ints:
    """Where each record begins, as far as lengths tell; who reads them checks them."""
    plain = data.tobytes()  # indexed twice as fast as any view
    starts: list[int] = []
    append = starts.append
    try:
        for at, end, count in zip(spans.start.tolist(), spans.end.tolist(), spans.record_count.tolist(), strict=True):
            for _ in range(count):
                append(at)
                byte = plain[at]
                if byte < 0x80:
                    at += (byte >> 1) + 1
                    continue
                following = plain[at + 1]
                if following < 0x80:
                    at += ((byte & 0x7F | following << 7) >> 1) + 2
                    continue
                length, at = read_int32(plain, at)
                if length < 0:
                    raise Unsound
                at += length
            if at != end:
                raise Unsound
    except (IndexError, ValueError) as error:
        raise Unsound from error
    return np.array(starts, np.int64)


def _read_headers(data: Bytes, at: Ints, counts: Ints) -> tuple[HeaderFields, Ints]:
    """The headers of records, of which the first stand at these bytes, and the bytes after the last ones."""
    fields = HeaderFields(*np.empty((4, int(counts.sum())), np.int64))
    after = at.copy()
    next_slot = np.cumsum(counts) - counts
    owners = np.flatnonzero(counts)
    left = counts[owners]
    while len(owners) > FEW:
        slots = next_slot[owners]
        name_size, name_at = read(data, after[owners], INT32_BYTES)
        value_size, value_at = read(data, name_at + np.maximum(name_size, 0), INT32_BYTES)
        _refuse_if((name_size < 0) | (value_size < -1))
        for field, found in zip(fields, (name_at, name_size, value_at, value_size), strict=True):
            field[slots] = found
        after[owners] = value_at + np.maximum(value_size, 0)
        next_slot[owners] += 1
        left -= 1
        owners, left = owners[left > 0], left[left > 0]
    if len(owners):
        plain = data.tobytes()
        for owner, count in zip(owners.tolist(), left.tolist(), strict=True):
            after[owner] = _read_headers_of_one(plain, int(after[owner]), count, fields, int(next_slot[owner]))
    return fields, after


def _read_headers_of_one(data: bytes, at: int, count: int, fields: HeaderFields, slot: int) -> int:
    found = []
    try:
        for _ in range(count):
            name_size, name_at = read_int32(data, at)
            value_size, value_at = read_int32(data, name_at + name_size)
            if name_size < 0 or value_size < -1:
                raise Unsound
            found.append((name_at, name_size, value_at, value_size))
            at = value_at + max(value_size, 0)
    except (IndexError, ValueError) as error:
        raise Unsound from error
    for field, numbers in zip(fields, zip(*found, strict=True), strict=True):
        field[slot : slot + count] = numbers
    return at
