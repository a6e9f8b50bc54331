"""What a broker may have to change about a batch that it appends: its compression, and whose time its records have.

Neither touches a record. Compression is that of all records as one, so the other one is put in its place; the time of
the append is one field and one bit, and readers then take it for the time of every record. Both change bytes that the
CRC covers. Base offset, producer and record count stay as they were.

All functions take one whole batch whose CRC was checked. Parse its header again afterwards.
"""

from __future__ import annotations

from crc32c import crc32c

from catena.errors import BatchTooLarge
from catena.formats.compression import Compression, compress, decompress
from catena.formats.record_batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    parse_header,
)
from catena.formats.records import MAX_BATCH_LENGTH, MAX_DECOMPRESSED_BYTES, NO_TIMESTAMP, iter_records
from catena.types import Buffer


def recompress(data: Buffer, compression: Compression, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The batch with its records compressed in this way; itself, if they are already.

    Raises InvalidBatch if the records cannot be decompressed, or would be more than `max_bytes` then.
    """
    header = parse_header(data)
    if header.compression is compression:
        return data
    records = decompress(header.compression, memoryview(data)[HEADER_BYTES:], max_bytes)
    attributes = header.attributes & ~COMPRESSION_MASK | compression
    return assemble(header._replace(attributes=attributes), compress(compression, records))


def stamp_append_time(data: Buffer, now_ms: int) -> bytes:
    """The batch with `now_ms` as the time of each of its records, in place of those that the producer gave."""
    header = parse_header(data)
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    return assemble(stamped, memoryview(data)[HEADER_BYTES : header.length])


def timestamp_fault(data: Buffer, now_ms: int, before_max_ms: int | None, after_max_ms: int | None) -> str | None:
    """What is wrong with the times that a producer gave, or None; they may lie so far before and after `now_ms`.

    The newest is in the header. For a bound on the oldest all records are read, since no field tells it.
    """
    header = parse_header(data)
    if header.log_append_time:
        return "a producer must not say that the times of records are those of the append"
    if after_max_ms is not None and header.max_timestamp > now_ms + after_max_ms:
        return f"timestamp {header.max_timestamp} is more than {after_max_ms} ms ahead of the broker's time {now_ms}"
    if before_max_ms is not None:
        times = [record.timestamp for record in iter_records(data) if record.timestamp != NO_TIMESTAMP]
        if times and min(times) < now_ms - before_max_ms:
            return f"timestamp {min(times)} is more than {before_max_ms} ms behind the broker's time {now_ms}"
    return None


def assemble(header: BatchHeader, records: Buffer) -> bytes:
    """The batch of this header, but for its length and CRC, and these records."""
    length = HEADER_BYTES - LENGTH_END + len(records)
    if length > MAX_BATCH_LENGTH:
        raise BatchTooLarge(f"a batch of {length} bytes; the format has room for {MAX_BATCH_LENGTH}")
    covered = header[header._fields.index("attributes") :]
    head = HEADER.pack(header.base_offset, length, header.leader_epoch, MAGIC, 0, *covered)
    crc = crc32c(records, crc32c(head[CRC_START:]))
    return b"".join(
        (HEADER.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc, *covered), memoryview(records))
    )
