"""Stored batches, checked, decompressed and put side by side, so that the records of many can be walked as one.

Batches that are not compressed stay where they are, headers and all, as long as they come from one body: nothing is
copied then. Memory is bounded by the chunk, and by the largest batch, which can't be cut before it is walked.

Control batches hold no records of producers, and are left out, as are batches that a compaction has emptied.
So are batches outside of the wanted offsets. Where headers of batches tell all that is wanted, records are not even
decompressed.

A batch whose CRC is right and whose records can't be read is **opaque** (see `walked_batches`). Who wants to go on
behind it is told of it; all others get an error, as for damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from catena.columns.fields import MIN_RECORD_BYTES, Spans
from catena.columns.varints import Ints
from catena.errors import Corrupt, InvalidBatch
from catena.formats.batch_scan import Source
from catena.formats.compression import Compression, decompress
from catena.formats.record_batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    check_crc,
    parse_header,
)
from catena.formats.records import MAX_DECOMPRESSED_BYTES, iter_records
from catena.types import Buffer, Offset, TopicPartition

_NEEDED = struct.Struct(">8xi4xbIhiqq14xi")
"""Length, magic, CRC, attributes, last offset delta, base and max timestamp, record count."""
_MIN_LENGTH = HEADER_BYTES - LENGTH_END
_NUMBERS = 7
MAX_BARE_RECORDS = MAX_DECOMPRESSED_BYTES // MIN_RECORD_BYTES
"""More can't be in a batch; so many are not made up because a header says so."""


class Body(NamedTuple):
    """Whole batches, one after the other, as a loglet, a blob or a segment holds them."""

    data: Buffer
    offset: Offset
    """Of its first record: stored batches do not know theirs."""
    source: Source | None = None
    """Where it was read from; errors name it."""


class OpaqueBatch(NamedTuple):
    """Nobody can tell what is in it."""

    offset: Offset
    header: BatchHeader
    data: memoryview
    """All of it, as it is stored."""
    fault: Corrupt
    """Why, with topic, partition, offset and object."""

    @property
    def last(self) -> Offset:
        return self.offset + self.header.last_offset_delta


class Wanted(NamedTuple):
    """What of the batches is asked for."""

    start: Offset
    end: Offset
    """No record at this offset or above."""
    max_rows: int
    max_bytes: int
    """Of records as they are when decompressed. A chunk keeps to both, unless one batch alone goes over it."""
    check_crc: bool
    headers_tell: bool
    """No field of a record is asked for, but for its offset."""
    headers_tell_append_time: bool
    """The same, and its time, which a batch's header tells where the broker gave it."""
    aside: Callable[[OpaqueBatch], None] | None = None
    """Told of each opaque batch whose last offset is wanted: so that of several who want some of its offsets each, one
    is told. None: they are errors."""

    def set_aside(self, batch: OpaqueBatch) -> None:
        """Raises its fault, if nobody is to be told of it."""
        if self.aside is None:
            raise batch.fault
        if self.start <= batch.last < self.end:
            self.aside(batch)


class _Batch(NamedTuple):
    body: Body
    at: int
    """Its first byte in the body."""
    offset: Offset
    record_count: int
    last_delta: int
    time: int
    """That of the first record, or of all, if the broker gave it."""
    is_append_time: bool
    records: memoryview | None
    """Its records are in here, from `start` to `end`; None: the header told all that is wanted."""
    start: int
    end: int


class Chunk:
    """Batches that are decoded together."""

    def __init__(self, partition: TopicPartition, is_bare: bool) -> None:
        self.is_bare = is_bare
        """There are no records in it: headers of batches told all."""
        self.rows = 0
        self.size = 0
        self._partition = partition
        self._batches: list[_Batch] = []
        self._numbers: list[tuple[int, ...]] = []
        self._pieces: list[tuple[memoryview, int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: _Batch) -> None:
        _, _, offset, count, last_delta, time, is_append_time, records, start, end = batch
        if records is not None:
            if self._pieces and self._pieces[-1][0] is records:
                _, first, last = self._pieces.pop()
                self._pieces.append((records, first, end))
                self.size += end - last
            else:
                self._pieces.append((records, start, end))
                self.size += end - start
        self.rows += count
        self._batches.append(batch)
        self._numbers.append((self.size - (end - start), self.size, count, last_delta, offset, time, is_append_time))

    def data(self) -> memoryview:
        parts = [records[start:end] for records, start, end in self._pieces]
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def numbers(self) -> tuple[Spans, Ints, Ints, Ints]:
        """Spans, and of each: the offset and the time of its first record, and 1 if the broker gave the time."""
        columns = np.array(self._numbers, np.int64).reshape(-1, _NUMBERS).T.copy()
        return Spans(*columns[:4]), columns[4], columns[5], columns[6]

    def halves(self) -> list[Chunk]:
        """None of one batch."""
        middle = len(self._batches) // 2
        found = []
        for part in (self._batches[:middle], self._batches[middle:]) if middle else ():
            half = Chunk(self._partition, self.is_bare)
            for batch in part:
                half.add(batch)
            found.append(half)
        return found

    def opaque(self) -> OpaqueBatch:
        """The only batch, which can't be walked."""
        (batch,) = self._batches
        return _opaque(memoryview(batch.body.data), batch.at, batch.offset, self.fault())

    def fault(self) -> Corrupt:
        """Why records of this chunk can't be walked, told by one who looks at each."""
        for batch in self._batches:
            view = memoryview(batch.body.data)[batch.at :]
            try:
                for _ in iter_records(view[: parse_header(view).length], batch.offset):
                    pass
            except InvalidBatch as error:
                return corrupt(self._partition, batch.body, batch.at, batch.offset, error)
        first = self._batches[0]
        return corrupt(
            self._partition, first.body, first.at, first.offset, "this batch, or one of those after it, is unsound"
        )


def corrupt(partition: TopicPartition, body: Body, at: int, offset: Offset, why: object) -> Corrupt:
    place = f"topic {partition.topic}, partition {partition.partition}, the batch at offset {offset}"
    if body.source is not None:
        place += f", object {body.source.key} at byte {body.source.start + at}"
    return Corrupt(f"{place}: {why}")


def chunks(bodies: Iterable[Body], partition: TopicPartition, wanted: Wanted) -> Iterator[Chunk]:
    """The batches of these bodies, which come in the order of their offsets."""
    chunk = Chunk(partition, is_bare=False)
    for batch in _in_order(bodies, partition, wanted):
        is_bare = batch.records is None
        is_full = (
            is_bare is not chunk.is_bare
            or chunk.rows + batch.record_count > wanted.max_rows
            or chunk.size + batch.end - batch.start > wanted.max_bytes
        )
        if is_full:
            if chunk:
                yield chunk
            chunk = Chunk(partition, is_bare)
        chunk.add(batch)
    if chunk:
        yield chunk


def _in_order(bodies: Iterable[Body], partition: TopicPartition, wanted: Wanted) -> Iterator[_Batch]:
    reached = 0
    for body in bodies:
        if body.offset < reached:
            raise corrupt(partition, body, 0, body.offset, f"those before it reach up to offset {reached}")
        reached = body.offset
        if reached >= wanted.end:
            return
        for batch in _batches(body, partition, wanted):
            yield batch
            reached = batch.offset + batch.last_delta + 1


def _batches(body: Body, partition: TopicPartition, wanted: Wanted) -> Iterator[_Batch]:
    """Those that are wanted."""
    view = memoryview(body.data)
    size = len(view)
    offset = body.offset
    at = 0
    while at < size and offset < wanted.end:
        if size - at < HEADER_BYTES:
            raise _unsound(view, at, offset, body, partition)
        length, magic, crc, attributes, last_delta, base_time, max_time, count = _NEEDED.unpack_from(view, at)
        end = at + length + LENGTH_END
        is_whole = length >= _MIN_LENGTH and end <= size and magic == MAGIC and 0 <= count <= last_delta + 1
        if not is_whole or attributes & COMPRESSION_MASK > Compression.ZSTD:
            raise _unsound(view, at, offset, body, partition)
        if offset + last_delta >= wanted.start:
            if wanted.check_crc and crc32c(view[at + CRC_START : end]) != crc:
                raise _unsound(view, at, offset, body, partition)
            if count and not attributes & CONTROL:
                is_append_time = bool(attributes & LOG_APPEND_TIME)
                tells = wanted.headers_tell or (wanted.headers_tell_append_time and is_append_time)
                is_bare = tells and count == last_delta + 1 and count <= MAX_BARE_RECORDS
                try:
                    records, start, stop = (None, 0, 0) if is_bare else records_of(view, at, end, attributes, count)
                except InvalidBatch as error:
                    wanted.set_aside(_opaque(view, at, offset, corrupt(partition, body, at, offset, error)))
                else:
                    time = max_time if is_append_time else base_time
                    yield _Batch(body, at, offset, count, last_delta, time, is_append_time, records, start, stop)
        offset += last_delta + 1
        at = end


def records_of(view: memoryview, at: int, end: int, attributes: int, count: int) -> tuple[memoryview, int, int]:
    """The bytes that hold the records of the batch at byte `at`, and where they begin and end there.

    Raises InvalidBatch if they can't be decompressed, or can't be so many.
    """
    compression = Compression(attributes & COMPRESSION_MASK)
    if compression is Compression.NONE:
        records, start, stop = view, at + HEADER_BYTES, end
    else:
        plain = decompress(compression, view[at + HEADER_BYTES : end], MAX_DECOMPRESSED_BYTES)
        records, start, stop = memoryview(plain), 0, len(plain)
    if count * MIN_RECORD_BYTES > stop - start:
        raise InvalidBatch(f"{count} records, with {stop - start} bytes for all of them")
    return records, start, stop


def _opaque(view: memoryview, at: int, offset: Offset, fault: Corrupt) -> OpaqueBatch:
    header = parse_header(view, at)
    return OpaqueBatch(offset, header, view[at : at + header.length], fault)


def _unsound(view: memoryview, at: int, offset: Offset, body: Body, partition: TopicPartition) -> Corrupt:
    """What is wrong with the batch at byte `at`, told by those who look at all of it."""
    batch = view[at:]
    try:
        check_crc(batch, parse_header(batch))
    except InvalidBatch as error:
        return corrupt(partition, body, at, offset, error)
    raise AssertionError(f"a sound batch at byte {at} was refused")
