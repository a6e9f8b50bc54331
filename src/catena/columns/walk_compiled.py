"""The walk over records, compiled by numba: see `fields`.

Compiled code reads wherever it is told to, so the rule of this module is: no byte is read unless it was compared with
the end of its record, or of its span, right before. Integers are all int64: numba makes floats of mixed ones.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from catena.columns.fields import Fields, HeaderFields, Spans
from catena.columns.varints import Bytes, Unsound
from catena.formats.varint import INT32_BYTES, INT64_BYTES

_NO = -1
"""In place of the byte after a number: there is none."""
_WITHOUT_SIGN = 2**63 - 1

_jit: Any = numba.njit(cache=True, nogil=True)


def _plain_read(data: Any, at: int, end: int, max_bytes: int) -> tuple[int, int]:
    zigzag = 0
    for number in range(max_bytes):
        if at >= end:
            return 0, _NO
        byte: Any = np.int64(data[at])
        at += 1
        zigzag |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            if max_bytes == INT32_BYTES:
                if zigzag >> 32 != 0:
                    return 0, _NO
            elif number == INT64_BYTES - 1 and byte > 1:
                return 0, _NO
            return ((zigzag >> 1) & _WITHOUT_SIGN) ^ -(zigzag & 1), at
    return 0, _NO


_read = _jit(_plain_read)


def _plain_read_field(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """Size, first byte, and the byte after."""
    size, at = _read(data, at, end, INT32_BYTES)
    if at == _NO or size < -1 or size > end - at:
        return 0, 0, _NO
    return size, at, at + max(size, 0)


_read_field = _jit(_plain_read_field)


def _plain_skip_headers(data: Any, at: int, end: int, count: int) -> int:
    for _ in range(count):
        size, _first, at = _read_field(data, at, end)
        if at == _NO or size < 0:
            return _NO
        _size, _first, at = _read_field(data, at, end)
        if at == _NO:
            return _NO
    return at


_skip_headers = _jit(_plain_skip_headers)


def _plain_walk_records(data: Any, start: Any, end: Any, count: Any, last_delta: Any, out: Any, headers_at: Any) -> int:
    """Fill in the fields, one row of `out` for each; how many headers there are, or -1 if a record is unsound."""
    row = 0
    header_total = 0
    for span in range(len(start)):
        at, span_end, previous = start[span], end[span], np.int64(-1)
        for _ in range(count[span]):
            length, at = _read(data, at, span_end, INT32_BYTES)
            if at == _NO or length < 1 or length > span_end - at:
                return _NO
            record_end = at + length
            time_delta, at = _read(data, at + 1, record_end, INT64_BYTES)
            if at == _NO:
                return _NO
            offset_delta, at = _read(data, at, record_end, INT32_BYTES)
            if at == _NO or offset_delta <= previous or offset_delta > last_delta[span]:
                return _NO
            key_size, key_at, at = _read_field(data, at, record_end)
            if at == _NO:
                return _NO
            value_size, value_at, at = _read_field(data, at, record_end)
            if at == _NO:
                return _NO
            header_count, at = _read(data, at, record_end, INT32_BYTES)
            if at == _NO or header_count < 0 or header_count > record_end - at:
                return _NO
            headers_at[row] = at
            if header_count > 0:
                at = _skip_headers(data, at, record_end, header_count)
            if at != record_end:
                return _NO
            out[0, row] = at
            out[1, row] = time_delta
            out[2, row] = offset_delta
            out[3, row] = key_at
            out[4, row] = key_size
            out[5, row] = value_at
            out[6, row] = value_size
            out[7, row] = header_count
            header_total += header_count
            previous = offset_delta
            row += 1
        if at != span_end:
            return _NO
    return header_total


_walk_records = _jit(_plain_walk_records)


def _plain_read_headers(data: Any, at: Any, ends: Any, counts: Any, out: Any) -> None:
    """Fill in the fields of headers, which were skipped once: they are sound."""
    slot = 0
    for row in range(len(at)):
        here = at[row]
        for _ in range(counts[row]):
            name_size, name_at, here = _read_field(data, here, ends[row])
            value_size, value_at, here = _read_field(data, here, ends[row])
            out[0, slot] = name_at
            out[1, slot] = name_size
            out[2, slot] = value_at
            out[3, slot] = value_size
            slot += 1


_read_headers = _jit(_plain_read_headers)


def walk(data: Bytes, spans: Spans) -> Fields:
    rows = int(spans.record_count.sum())
    fields = np.empty((8, rows), np.int64)
    headers_at = np.empty(rows, np.int64)
    header_total = _walk_records(data, *spans, fields, headers_at)
    if header_total == _NO:
        raise Unsound
    headers = np.empty((4, header_total), np.int64)
    if header_total:
        _read_headers(data, headers_at, fields[0], fields[7], headers)
    return Fields._make([*fields, HeaderFields(*headers)])
