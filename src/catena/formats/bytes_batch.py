"""The body `bytes-batch-v1` of older data: values alone, without keys, headers or times.

    count   uint32, big-endian
    then `count` times
        length  uint32, big-endian
        value   `length` bytes

Nothing writes it any more but tests and imports. A reader turns it into a RecordBatch at the door, so that everything
above knows one format.
"""

from __future__ import annotations

from collections.abc import Sequence

from catena.errors import Corrupt
from catena.formats.records import build_batch
from catena.types import Buffer

LENGTH_BYTES = 4


def encode(values: Sequence[bytes]) -> bytes:
    parts = [len(values).to_bytes(LENGTH_BYTES, "big")]
    for value in values:
        parts += (len(value).to_bytes(LENGTH_BYTES, "big"), value)
    return b"".join(parts)


def decode(body: Buffer) -> list[bytes]:
    view = memoryview(body)
    count = _read_length(view, 0)
    at = LENGTH_BYTES
    if count * LENGTH_BYTES > len(view) - at:
        raise Corrupt(f"byte 0 of bytes-batch-v1: {count} records, with {len(view) - at} bytes left")
    values = []
    for number in range(count):
        length = _read_length(view, at)
        start = at + LENGTH_BYTES
        left = len(view) - start
        if length > left:
            raise Corrupt(f"byte {at} of bytes-batch-v1: record {number} has {length} bytes, and {left} are left")
        at = start + length
        values.append(bytes(view[start:at]))
    if at != len(view):
        raise Corrupt(f"byte {at} of bytes-batch-v1: {len(view) - at} bytes follow the last of {count} records")
    return values


def as_record_batch(body: Buffer, timestamp_ms: int) -> bytes:
    """The same values as one RecordBatch v2, all with the time at which the body was written."""
    values = decode(body)
    if not values:
        raise Corrupt("byte 0 of bytes-batch-v1: no records, and an empty body takes no offsets")
    return build_batch((None, value, (), timestamp_ms) for value in values)


def _read_length(view: memoryview, at: int) -> int:
    field = view[at : at + LENGTH_BYTES]
    if len(field) < LENGTH_BYTES:
        raise Corrupt(f"byte {at} of bytes-batch-v1: a length of {LENGTH_BYTES} bytes, of which {len(field)} are there")
    return int.from_bytes(field, "big")
