"""The records inside a RecordBatch v2: built into one, and read out of one.

    record  length varint, attributes int8, timestampDelta varlong, offsetDelta varint,
            key length varint (-1: null), key, value length varint (-1: null), value,
            header count varint, then per header: key length varint, key in UTF-8, value length varint (-1: null), value

Producers and consumers use this; the log itself never does. What is read came from a network once: every length is
checked against the bytes that are left before anything is made of it, and decompression is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from catena.errors import BatchTooLarge, InvalidBatch
from catena.formats import varint
from catena.formats.compression import Compression, compress, decompress
from catena.formats.record_batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    check_crc,
    parse_header,
)
from catena.types import Buffer, Offset

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
MAX_TIMESTAMP = 2**63 - 2
"""Its distance to NO_TIMESTAMP is the largest that a varlong holds."""
MAX_BATCH_LENGTH = 2**31 - 1
MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024


class Record(NamedTuple):
    offset: Offset
    timestamp: int
    """Milliseconds since 1970, or -1 where the producer gave none."""
    key: bytes | None
    value: bytes | None
    headers: Headers


def build_batch(
    records: Iterable[tuple[bytes | None, bytes | None, Headers, int]],
    *,
    compression: Compression = Compression.NONE,
    base_offset: Offset = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    log_append_time: int | None = None,
) -> bytes:
    """One batch of (key, value, headers, timestamp), which must be one record at least.

    With `log_append_time` that is the time of all of them, and readers see no other.
    """
    body = bytearray()
    base_timestamp = max_timestamp = NO_TIMESTAMP
    last_offset_delta = -1
    for last_offset_delta, (key, value, headers, timestamp) in enumerate(records):
        if not NO_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            raise InvalidBatch(f"record {last_offset_delta}: {timestamp} is not a timestamp")
        if last_offset_delta == 0:
            base_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        record = b"".join(
            (
                b"\x00",
                varint.encode(timestamp - base_timestamp),
                varint.encode(last_offset_delta),
                *_sized(key),
                *_sized(value),
                _encoded_headers(headers) if headers else b"\x00",
            )
        )
        body += varint.encode(len(record))
        body += record
    if last_offset_delta < 0:
        raise InvalidBatch("a batch needs one record at least")
    return _assemble(
        body if compression is Compression.NONE else compress(compression, body),
        attributes=compression if log_append_time is None else compression | LOG_APPEND_TIME,
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp if log_append_time is None else log_append_time,
        producer=(producer_id, producer_epoch, base_sequence),
    )


def iter_records(
    data: Buffer, base_offset: Offset | None = None, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """The records of one whole batch, whose CRC is checked first.

    `base_offset` takes the place of the stored one. Raises InvalidBatch if the records would be more than `max_bytes`
    when decompressed, and, at the latest when the damaged record is reached, if anything in them is unsound.
    """
    header = parse_header(data)
    if header.length != len(data):
        raise InvalidBatch(f"byte {header.length}: {len(data) - header.length} bytes follow the end of the batch")
    check_crc(data, header)
    body = decompress(header.compression, memoryview(data)[HEADER_BYTES:], max_bytes)
    first_offset = header.base_offset if base_offset is None else base_offset
    last_delta = header.last_offset_delta
    append_time = header.max_timestamp if header.log_append_time else None
    previous_delta = -1
    at = 0
    for number in range(header.record_count):
        start = at
        try:
            length, at = varint.read_int32(body, at)
            end = at + length
            if length < 0 or end > len(body):
                raise ValueError(f"a record of {length} bytes, with {len(body) - at} left")
            timestamp_delta, at = varint.read_int64(body, at + 1)
            offset_delta, at = varint.read_int32(body, at)
            key, at = _read_sized(body, at, end)
            value, at = _read_sized(body, at, end)
            header_count, at = varint.read_int32(body, at)
            headers, at = _read_headers(body, at, end, header_count) if header_count else ((), at)
            if at != end:
                raise ValueError(f"its fields have {at - start} bytes, but with its length it has {end - start}")
            if not previous_delta < offset_delta <= last_delta:
                raise ValueError(f"offset delta {offset_delta} after {previous_delta}, of {last_delta}")
        except (ValueError, IndexError) as error:
            raise _unsound(header, number, start, error) from error
        previous_delta = offset_delta
        timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(first_offset + offset_delta, timestamp, key, value, headers)
    if at != len(body):
        raise InvalidBatch(f"{_position(header, at)}: {len(body) - at} bytes follow the last record")


def _sized(field: bytes | None) -> tuple[bytes, bytes]:
    return (b"\x01", b"") if field is None else (varint.encode(len(field)), field)


def _encoded_headers(headers: Headers) -> bytes:
    parts = [varint.encode(len(headers))]
    for name, value in headers:
        try:
            encoded_name = name.encode()
        except UnicodeEncodeError as error:
            raise InvalidBatch(f"header name {name!r} is not Unicode text: {error}") from error
        parts += _sized(encoded_name)
        parts += _sized(value)
    return b"".join(parts)


def _assemble(
    records: Buffer,
    *,
    attributes: int,
    base_offset: Offset,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer: tuple[int, int, int],
) -> bytes:
    length = HEADER_BYTES - LENGTH_END + len(records)
    if length > MAX_BATCH_LENGTH:
        raise BatchTooLarge(f"a batch of {length} bytes; the format has room for {MAX_BATCH_LENGTH}")
    # The CRC covers what comes after it, so the header is packed once for that part and once more with it.
    covered = (attributes, last_offset_delta, base_timestamp, max_timestamp, *producer, last_offset_delta + 1)
    head = HEADER.pack(base_offset, length, NO_LEADER_EPOCH, MAGIC, 0, *covered)
    crc = crc32c(records, crc32c(head[CRC_START:]))
    return HEADER.pack(base_offset, length, NO_LEADER_EPOCH, MAGIC, crc, *covered) + records


def _read_sized(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = varint.read_int32(data, at)
    if length < 0:
        if length != -1:
            raise ValueError(f"a field of {length} bytes")
        return None, at
    field_end = at + length
    if field_end > end:
        raise ValueError(f"a field of {length} bytes, with {end - at} left in the record")
    return data[at:field_end], field_end


def _read_headers(data: bytes, at: int, end: int, count: int) -> tuple[Headers, int]:
    if not 0 <= count <= end - at:
        raise ValueError(f"{count} headers, with {end - at} bytes left in the record")
    headers = []
    for _ in range(count):
        name, at = _read_sized(data, at, end)
        if name is None:
            raise ValueError("a header without a name")
        value, at = _read_sized(data, at, end)
        headers.append((name.decode(), value))
    return tuple(headers), at


def _unsound(header: BatchHeader, number: int, at: int, error: Exception) -> InvalidBatch:
    reason = "the records end in the middle of it" if isinstance(error, IndexError) else error
    return InvalidBatch(f"{_position(header, at)}: record {number} of {header.record_count} is unsound: {reason}")


def _position(header: BatchHeader, at: int) -> str:
    if header.compression is Compression.NONE:
        return f"byte {HEADER_BYTES + at}"
    return f"byte {at} of the decompressed records"
