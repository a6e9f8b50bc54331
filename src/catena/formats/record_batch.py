"""The Kafka RecordBatch v2: its header, read in place, and the few bytes that change while a batch is served.

    byte   0  baseOffset            int64   outside the CRC: patched while the batch is sent
           8  batchLength           int32   counts the bytes after itself
          12  partitionLeaderEpoch  int32   outside the CRC: patched while the batch is sent
          16  magic                 int8    2
          17  crc                   uint32  CRC-32C of everything from byte 21 to the end
          21  attributes            int16   bits 0-2 compression, 3 LogAppendTime, 4 transactional, 5 control
          23  lastOffsetDelta       int32   the batch takes this many offsets plus one
          27  baseTimestamp         int64
          35  maxTimestamp          int64
          43  producerId            int64   -1: no idempotent producer
          51  producerEpoch         int16
          53  baseSequence          int32
          57  recordCount           int32   lower than the offsets taken in a batch that a compaction thinned out
          61  records               compressed as one, see `records`

A batch is the one format from the socket to cold storage. Nobody above this package looks behind the header, so
nothing here copies a record: headers are unpacked in place and batches are views of the buffer they arrived in.
Errors name the byte, counted from the start of the buffer that was given.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from catena.errors import InvalidBatch
from catena.formats.compression import Compression
from catena.types import Buffer, Epoch, Offset

MAGIC = 2
HEADER_BYTES = 61
CRC_START = 21
"""First byte that the CRC covers."""
LENGTH_END = 12
"""Bytes that batchLength does not count: those up to and including itself."""

HEADER = struct.Struct(">qiibIhiqqqhii")
WIRE_PREFIX = struct.Struct(">qii")

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


class BatchHeader(NamedTuple):
    base_offset: Offset
    length: int
    """Of the whole batch, the 12 bytes that batchLength leaves out included."""
    leader_epoch: Epoch
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def count(self) -> int:  # type: ignore[override]  # nobody asks a header how often a number is in it
        """Offsets that the batch takes."""
        return self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        return Compression(self.attributes & COMPRESSION_MASK)

    @property
    def log_append_time(self) -> bool:
        """Whether max_timestamp, set by the broker, is the time of every record."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent producer wrote it."""
        return self.producer_id >= 0


def parse_header(data: Buffer, at: int = 0) -> BatchHeader:
    """The header of the batch that starts at byte `at` and lies wholly inside `data`. The CRC is not checked."""
    left = len(data) - at
    if left < HEADER_BYTES:
        raise InvalidBatch(f"byte {at}: {left} bytes are left, and a batch has {HEADER_BYTES} at least")
    (
        base_offset,
        batch_length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = HEADER.unpack_from(data, at)
    if magic != MAGIC:
        raise InvalidBatch(f"byte {at + 16}: magic is {magic}, and only format {MAGIC} is taken")
    length = batch_length + LENGTH_END
    if length < HEADER_BYTES:
        raise InvalidBatch(f"byte {at + 8}: batch length {batch_length} is too short for the header of a batch")
    if length > left:
        raise InvalidBatch(f"byte {at + 8}: a batch of {length} bytes, of which {left} are there")
    if last_offset_delta < 0:
        raise InvalidBatch(f"byte {at + 23}: last offset delta {last_offset_delta} is negative")
    if not 0 <= record_count <= last_offset_delta + 1:
        raise InvalidBatch(f"byte {at + 57}: {record_count} records cannot take {last_offset_delta + 1} offsets")
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise InvalidBatch(f"byte {at + 21}: there is no compression {attributes & COMPRESSION_MASK}")
    return BatchHeader(
        base_offset,
        length,
        leader_epoch,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )


def check_crc(data: Buffer, header: BatchHeader, at: int = 0) -> None:
    """Raise InvalidBatch unless the batch at byte `at`, whose header this is, has the CRC it claims."""
    computed = crc32c(memoryview(data)[at + CRC_START : at + header.length])
    if computed != header.crc:
        raise InvalidBatch(
            f"byte {at + 17}: the stored CRC is {header.crc:08x}, but bytes {at + CRC_START} to "
            f"{at + header.length - 1} have {computed:08x}"
        )


def split_batches(data: Buffer) -> list[tuple[BatchHeader, memoryview]]:
    """The batches that `data` is made of, as views of it; raises InvalidBatch unless it is whole batches only."""
    view = memoryview(data)
    batches = []
    at = 0
    while at < len(view):
        header = parse_header(view, at)
        batches.append((header, view[at : at + header.length]))
        at += header.length
    return batches


def wire_prefix(length: int, offset: Offset, leader_epoch: Epoch) -> bytes:
    """The first 16 bytes of a batch of `length` bytes as a client gets them.

    No CRC covers them, so a stored batch is served as `wire_prefix(...)` and `data[16:]`, untouched.
    """
    return WIRE_PREFIX.pack(offset, length - LENGTH_END, leader_epoch)


def patched(data: Buffer, offset: Offset, leader_epoch: Epoch) -> bytes:
    """One batch as a client gets it, copied, for those who need one buffer."""
    return b"".join((wire_prefix(len(data), offset, leader_epoch), memoryview(data)[WIRE_PREFIX.size :]))
