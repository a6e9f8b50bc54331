"""Arrow columns to record batches: what Spark's writers and HTTP's producers send.

The numbers of all records are written at once by numpy, into bytes that stand before the key, before the value and
behind it; Arrow joins them with keys and values into one buffer, of which each batch is a slice. How records are split
into batches is decided before their exact size is known, by a bound that is over it by a few bytes a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from numpy.typing import NDArray

from catena.columns import schema
from catena.columns.varints import Ints, sizes_of, write, zigzag_of
from catena.errors import BatchTooLarge, InvalidBatch
from catena.formats.compression import Compression, compress
from catena.formats.record_batch import CRC_START, HEADER, HEADER_BYTES, LENGTH_END, MAGIC
from catena.formats.records import (
    MAX_DECOMPRESSED_BYTES,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
)

MAX_BATCH_BYTES = 1_000_000
"""What a topic takes by default is a little more."""
_SEQUENCES = 2**31
"""Sequence numbers begin at 0 again after the last of so many."""
_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""What a unit of time is multiplied with, and divided by, for milliseconds."""


class Producer(NamedTuple):
    """The stamp of an idempotent producer."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1
    """Of the first record."""

    def after(self, count: int) -> Producer:
        return self if self.sequence < 0 else self._replace(sequence=(self.sequence + count) % _SEQUENCES)


NO_PRODUCER = Producer()


class _Varints(NamedTuple):
    zigzag: NDArray[np.uint64]
    size: Ints


class _Field(NamedTuple):
    """One field of all records: its bytes, and how many they are, -1 for null."""

    data: pa.Array
    size: Ints
    number: _Varints
    """The size, as it is written."""
    filled: Ints
    """How many bytes it takes, without the number."""


def encode(
    rows: pa.RecordBatch | pa.Table,
    *,
    compression: Compression = Compression.NONE,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    time_ms: int = NO_TIMESTAMP,
    producer: Producer = NO_PRODUCER,
) -> list[bytes]:
    """These rows, in their order, as batches with base offset 0, each of up to `max_batch_bytes` before compression.

    Columns `key`, `value` (binary or text), `headers` and `timestamp` (of any unit, or milliseconds as integers) are
    read, and may be missing; others are not looked at. `time_ms` is the time of rows without one. A row that alone is
    larger gets a batch of its own: whoever appends it says whether the log takes it. Raises InvalidBatch, with column
    or row, for what no batch can hold.
    """
    count = rows.num_rows
    if not count:
        return []
    key, value, timestamp, headers = (
        _in_one(rows.column(name)) if name in rows.schema.names else pa.nulls(count)
        for name in (schema.KEY, schema.VALUE, schema.TIMESTAMP, schema.HEADERS)
    )
    fields = _field(key, schema.KEY), _field(value, schema.VALUE), *_tails(headers)
    times = _times(timestamp, time_ms)
    starts = _split(_size_bounds(*fields, times), max_batch_bytes - HEADER_BYTES)
    records = _records(*fields, times, starts)
    return _batches(records, times, starts, compression, producer)


def _in_one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _field(column: pa.Array, name: str) -> _Field:
    try:
        data = column.cast(pa.large_binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidBatch(f"column {name} is {column.type}, and must be binary or text") from error
    sizes = pc.binary_length(data).fill_null(-1).to_numpy()
    return _Field(data.fill_null(b"") if data.null_count else data, sizes, _varints(sizes), np.maximum(sizes, 0))


def _times(column: pa.Array, time_ms: int) -> Ints:
    if pa.types.is_timestamp(column.type):
        multiply, divide = _PER_MS[column.type.unit]
    elif pa.types.is_int64(column.type) or pa.types.is_null(column.type):
        multiply, divide = _PER_MS["ms"]
    else:
        raise InvalidBatch(f"column timestamp is {column.type}, and must be a timestamp, or int64 for milliseconds")
    ticks = column.cast(pa.int64())
    found = ticks.fill_null(0).to_numpy()
    is_too_great = found > MAX_TIMESTAMP // multiply
    times = np.where(is_too_great, 0, found) * multiply // divide
    is_unsound = is_too_great | (found < NO_TIMESTAMP * 1_000_000) | (times < NO_TIMESTAMP)
    if is_unsound.any():
        row = int(np.argmax(is_unsound))
        raise InvalidBatch(f"row {row}: {found[row]} {column.type} is not a time that a record can have")
    if ticks.null_count:
        times[ticks.is_null().to_numpy(zero_copy_only=False)] = time_ms
    return times


def _tails(column: pa.Array) -> tuple[pa.Array, Ints]:
    """What follows the value of each record, how many headers it has, and these; and how many bytes that is."""
    count = len(column)
    if pa.types.is_null(column.type):
        counts = np.zeros(count, np.int64)
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        counts = pc.list_value_length(column).fill_null(0).cast(pa.int64()).to_numpy()
    else:
        raise InvalidBatch(f"column headers is {column.type}, and must be {schema.HEADERS_TYPE}")
    if not counts.any():
        return pa.scalar(b"\x00", pa.large_binary()), np.ones(count, np.int64)
    headers = column.flatten()
    if not pa.types.is_struct(headers.type) or {"key", "value"} - {field.name for field in headers.type}:
        raise InvalidBatch(f"column headers is {column.type}, and must be {schema.HEADERS_TYPE}")
    try:
        names = pc.struct_field(headers, "key").cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise InvalidBatch(f"a header's name is not UTF-8: {error}") from error
    name, value = _field(names, "headers.key"), _field(pc.struct_field(headers, "value"), "headers.value")
    if (name.size < 0).any():
        row = int(np.repeat(np.arange(count), counts)[np.argmin(name.size)])
        raise InvalidBatch(f"row {row}: a header without a name")
    each = _joined(_written(name.number), name.data, _written(value.number), value.data)
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    # Headers of one record are neighbours already.
    of_records = _large_binary(_ends(each)[bounds], each.buffers()[2])
    tails = _joined(_written(_varints(counts)), of_records)
    return tails, np.diff(_ends(tails))


def _size_bounds(key: _Field, value: _Field, _: pa.Array, tail_sizes: Ints, times: Ints) -> Ints:
    """No record takes more bytes than these, wherever in a batch it is."""
    greatest_deltas = np.array([int(times.max()) - int(times.min()), len(times)])
    sizes = 1 + int(_varints(greatest_deltas).size.sum()) + key.filled + value.filled + tail_sizes
    sizes += key.number.size + value.number.size
    return sizes + _varints(sizes).size


def _split(sizes: Ints, room: int) -> list[int]:
    """The first row of each batch, and the end."""
    ends = np.cumsum(sizes)
    starts = [0]
    while starts[-1] < len(sizes):
        start = starts[-1]
        filled = int(ends[start - 1]) if start else 0
        starts.append(max(start + 1, int(np.searchsorted(ends, filled + room, "right"))))
    return starts


def _records(
    key: _Field, value: _Field, tails: pa.Array, tail_sizes: Ints, times: Ints, starts: Sequence[int]
) -> pa.Array:
    """All records as bytes."""
    first = np.repeat(starts[:-1], np.diff(starts))
    attributes = _Varints(np.zeros(len(times), np.uint64), np.ones(len(times), np.int64))
    deltas = attributes, _varints(times - times[first]), _varints(np.arange(len(times)) - first)
    numbers = (*deltas, key.number, value.number)
    length = _varints(sum((number.size for number in numbers), key.filled + value.filled + tail_sizes))
    if not key.filled.any():
        return _joined(_written(length, *numbers), value.data, tails)
    return _joined(_written(length, *deltas, key.number), key.data, _written(value.number), value.data, tails)


def _batches(
    records: pa.Array, times: Ints, starts: Sequence[int], compression: Compression, producer: Producer
) -> list[bytes]:
    data = memoryview(records.buffers()[2])
    ends = _ends(records)
    newest = np.maximum.reduceat(times, starts[:-1]).tolist()
    batches = []
    for number, (first, last) in enumerate(pairwise(starts)):
        body = data[ends[first] : ends[last]]
        if len(body) > MAX_DECOMPRESSED_BYTES:
            raise BatchTooLarge(
                f"row {first}: {len(body)} bytes of records in one batch; readers take {MAX_DECOMPRESSED_BYTES}"
            )
        if compression is not Compression.NONE:
            body = memoryview(compress(compression, body))
        length = HEADER_BYTES - LENGTH_END + len(body)
        count = last - first
        covered = (compression, count - 1, int(times[first]), newest[number], *producer, count)
        crc = crc32c(body, crc32c(HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, 0, *covered)[CRC_START:]))
        batches.append(b"".join((HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, crc, *covered), body)))
        producer = producer.after(count)
    return batches


def _varints(values: Ints) -> _Varints:
    zigzag = zigzag_of(values)
    return _Varints(zigzag, sizes_of(zigzag))


def _written(*numbers: _Varints) -> pa.Array:
    """The bytes of these numbers, one after the other, for each row."""
    ends = np.zeros(len(numbers[0].size) + 1, np.int64)
    np.cumsum(sum(number.size for number in numbers), out=ends[1:])
    out = np.empty(int(ends[-1]), np.uint8)
    at = ends[:-1]
    for zigzag, sizes in numbers:
        write(out, at, zigzag, sizes)
        at = at + sizes
    return _large_binary(ends, pa.py_buffer(out))


def _joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _large_binary(ends: Ints, data: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, [None, pa.py_buffer(ends), data])


def _ends(column: pa.Array) -> Ints:
    """Where the bytes of each row begin, and the end."""
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
