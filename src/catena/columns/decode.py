"""Stored record batches to Arrow: the same code for Spark's source, tables, the audit and HTTP.

    bodies --gather--> chunks --walk--> where each field stands --cut--> Arrow batches of bounded size

Only the columns that are asked for are cut out. Fields of neighbouring records lie in order, so they and what is
between them form a valid Arrow array without a copy, in which every other entry is a field: Arrow itself takes those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catena.columns import schema
from catena.columns.fields import Fields, HeaderFields
from catena.columns.gather import Body, Chunk, OpaqueBatch, Wanted, chunks
from catena.columns.schema import COLUMNS, schema_of
from catena.columns.varints import Ints, Unsound
from catena.columns.walking import walk
from catena.types import Offset, TopicPartition

MAX_ROWS = 32_768
MAX_BYTES = 4 << 20
"""With both, what is worked on at a time stays in a core's cache. A batch of large records, too: with one of 16 MB each
had pages of its own from the kernel, which took as long as all of the decoding."""
LIMIT_BYTES = 1 << 30
"""More than that in one Arrow batch, and its 32-bit positions might not reach."""
END = 2**63 - 1

_OF_HEADERS = {schema.TOPIC, schema.PARTITION, schema.OFFSET, schema.TIMESTAMP_TYPE}
"""Columns that the header of a batch tells."""
MAX_MS = (2**63 - 1) // 1000
MIN_MS = -MAX_MS


def decode(
    bodies: Iterable[Body],
    partition: TopicPartition,
    *,
    columns: Sequence[str] = COLUMNS,
    start: Offset = 0,
    end: Offset = END,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    check_crc: bool = True,
    aside: Callable[[OpaqueBatch], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of these bodies from offset `start` up to, not including, `end`, as Arrow batches that are not empty.

    Bodies come in the order of their offsets. A batch has up to `max_rows` rows, and up to `max_bytes` bytes of
    records, unless one record alone has more. Raises Corrupt, with topic, partition, offset and object, at the latest
    when the batch that is not sound is reached. `check_crc=False` is for who has checked them already.

    `aside` is told of batches that can't be decoded though their CRC is right, and the others are decoded; of one whose
    last offset is not wanted it is not told. So all of them are looked into then, also where headers would tell enough.
    """
    if not (max_rows > 0 and 0 < max_bytes <= LIMIT_BYTES):
        raise ValueError(f"batches of up to {max_rows} rows and {max_bytes} bytes can't be made")
    arrow_schema = schema_of(columns)
    names = set(columns)
    wanted = Wanted(
        start,
        end,
        max_rows,
        max_bytes,
        check_crc,
        headers_tell=aside is None and names <= _OF_HEADERS,
        headers_tell_append_time=aside is None and names <= _OF_HEADERS | {schema.TIMESTAMP},
        aside=aside,
    )
    for chunk in chunks(bodies, partition, wanted):
        for rows in _sound_rows(chunk, wanted):
            for first, last in _cuts(rows, wanted):
                columns_of = [_CUT[name](rows, first, last, partition) for name in columns]
                yield pa.RecordBatch.from_arrays(columns_of, schema=arrow_schema)


class _Rows(NamedTuple):
    """The records of a chunk."""

    data: pa.Buffer
    fields: Fields
    offset: Ints
    time: Ints
    """Of the batch: that of its first record, or of all."""
    is_append_time: Ints
    header: Ints
    """Which of all headers is its first one; empty if no record has any."""


def _sound_rows(chunk: Chunk, wanted: Wanted) -> Iterator[_Rows]:
    """Opaque batches are found by halves: most often there is none."""
    try:
        rows = _rows_of(chunk)
    except Unsound:
        if wanted.aside is None:
            raise chunk.fault() from None
    else:
        yield rows
        return
    halves = chunk.halves()
    if not halves:
        wanted.set_aside(chunk.opaque())
    for half in halves:
        yield from _sound_rows(half, wanted)


def _rows_of(chunk: Chunk) -> _Rows:
    """Raises Unsound."""
    spans, offset, time, is_append_time = chunk.numbers()
    data = chunk.data()
    if chunk.is_bare:
        fields = _bare_fields(spans.record_count)
    else:
        view = np.frombuffer(data, np.uint8)
        view.flags.writeable = False  # one type of array, so that the walk is compiled once
        fields = walk(view, spans)
    counts = spans.record_count
    return _Rows(
        pa.py_buffer(data),
        fields,
        np.repeat(offset, counts) + fields.offset_delta,
        np.repeat(time, counts),
        np.repeat(is_append_time, counts),
        np.cumsum(fields.header_count) - fields.header_count if len(fields.headers.name_at) else counts[:0],
    )


def _bare_fields(counts: Ints) -> Fields:
    """Of batches that no record is missing from: offsets count up, and nothing else is asked for."""
    total = int(counts.sum())
    nothing = np.zeros(total, np.int64)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    headers = HeaderFields(*[nothing[:0]] * 4)
    return Fields._make([nothing, nothing, np.arange(total) - first, *[nothing] * 5, headers])


def _cuts(rows: _Rows, wanted: Wanted) -> Iterator[tuple[int, int]]:
    """Which rows become one Arrow batch."""
    end_bytes = rows.fields.end
    first, stop = np.searchsorted(rows.offset, (wanted.start, wanted.end)).tolist()
    while first < stop:
        reached = int(end_bytes[first - 1]) if first else 0
        last = int(np.searchsorted(end_bytes, reached + wanted.max_bytes, "right"))
        last = max(first + 1, min(last, first + wanted.max_rows, stop))
        yield first, last
        first = last


def _cut_key(rows: _Rows, first: int, last: int, _: TopicPartition) -> pa.Array:
    return cut_binary(rows.data, rows.fields.key_at[first:last], rows.fields.key_size[first:last])


def _cut_value(rows: _Rows, first: int, last: int, _: TopicPartition) -> pa.Array:
    return cut_binary(rows.data, rows.fields.value_at[first:last], rows.fields.value_size[first:last])


def _cut_topic(_: _Rows, first: int, last: int, partition: TopicPartition) -> pa.Array:
    return pa.repeat(partition.topic, last - first)


def _cut_partition(_: _Rows, first: int, last: int, partition: TopicPartition) -> pa.Array:
    return pa.array(np.full(last - first, partition.partition, np.int32))


def _cut_offset(rows: _Rows, first: int, last: int, _: TopicPartition) -> pa.Array:
    return pa.array(rows.offset[first:last])


def _cut_timestamp(rows: _Rows, first: int, last: int, _: TopicPartition) -> pa.Array:
    base = rows.time[first:last]
    delta = np.where(rows.is_append_time[first:last], 0, rows.fields.time_delta[first:last])
    milliseconds = base + delta
    overflown = ((base ^ milliseconds) & (delta ^ milliseconds)) < 0
    if overflown.any():
        milliseconds[overflown] = np.where(base[overflown] < 0, MIN_MS, MAX_MS)
    microseconds = np.clip(milliseconds, MIN_MS, MAX_MS) * 1000
    return pa.array(microseconds).view(pa.timestamp("us", "UTC"))


def _cut_timestamp_type(rows: _Rows, first: int, last: int, _: TopicPartition) -> pa.Array:
    return pa.array(rows.is_append_time[first:last].astype(np.int32))


def _cut_headers(rows: _Rows, first: int, last: int, _: TopicPartition) -> pa.Array:
    counts = rows.fields.header_count[first:last]
    total = int(counts.sum())
    if not total:
        return pa.nulls(last - first, schema.HEADERS_TYPE)
    start = int(rows.header[first])
    headers = [field[start : start + total] for field in rows.fields.headers]
    names = _text(cut_binary(rows.data, *headers[:2]))
    values = cut_binary(rows.data, *headers[2:])
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    return pa.ListArray.from_arrays(
        pa.array(bounds),
        pa.StructArray.from_arrays([names, values], fields=schema.HEADER_FIELDS),
        type=schema.HEADERS_TYPE,
        mask=pa.array(counts == 0),
    )


_CUT: dict[str, Callable[[_Rows, int, int, TopicPartition], Any]] = {
    schema.KEY: _cut_key,
    schema.VALUE: _cut_value,
    schema.TOPIC: _cut_topic,
    schema.PARTITION: _cut_partition,
    schema.OFFSET: _cut_offset,
    schema.TIMESTAMP: _cut_timestamp,
    schema.TIMESTAMP_TYPE: _cut_timestamp_type,
    schema.HEADERS: _cut_headers,
}


def cut_binary(data: pa.Buffer, at: Ints, size: Ints) -> pa.Array:
    """The fields that stand there, copied out of `data`; a size of -1 is null."""
    count = len(at)
    is_null = size < 0
    has_nulls = is_null.any()
    if has_nulls and is_null.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[:-1:2] = at
    np.add(at, np.maximum(size, 0) if has_nulls else size, out=bounds[1::2], casting="unsafe")
    bounds[-1] = bounds[-2]
    fields_and_gaps = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), data])
    fields = np.arange(0, 2 * count, 2, dtype=np.int32)
    return fields_and_gaps.take(pa.array(fields, mask=is_null if has_nulls else None))


def _text(names: pa.Array) -> pa.Array:
    """As text. Kafka's clients replace what is no UTF-8, and a broker takes it: so it must not stop a reader."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
