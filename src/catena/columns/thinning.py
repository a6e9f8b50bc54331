"""Take records out of stored batches, many at a time; see `catena.formats.thinned` for what is left of a batch.

Whoever compacts names the offsets of the records that stay. Records without a key stay, too: no later one takes their
place. So do control batches. A batch that loses nothing keeps its bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from catena.columns.fields import MIN_RECORD_BYTES, Fields, Spans
from catena.columns.gather import Body, corrupt
from catena.columns.varints import Bytes, Ints, Unsound
from catena.columns.walking import walk
from catena.errors import InvalidBatch
from catena.formats.compression import decompress
from catena.formats.record_batch import HEADER_BYTES, BatchHeader, check_crc, parse_header
from catena.formats.records import MAX_DECOMPRESSED_BYTES, iter_records
from catena.formats.thinned import gaps, is_gap, thinned
from catena.types import Offset, TopicPartition

MAX_BYTES = 16 << 20
"""Of records, decompressed, that are looked at together; one batch may have more."""


class _Batch(NamedTuple):
    body: Body
    at: int
    offset: Offset
    header: BatchHeader
    data: memoryview
    records: bytes
    """Decompressed."""


class Thinner:
    """Bodies in, in the order of their offsets; the batches that are left out."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._waiting: list[_Batch] = []
        self._waiting_bytes = 0
        self._gap = 0
        self.batches: list[bytes] = []
        self.records = 0
        """That are left."""
        self.survivors = 0
        """Of those, how many were named."""
        self.removed = 0

    def add(self, body: Body, kept: Ints) -> None:
        """Of its records with a key, those with these offsets stay; they are in order. Raises Corrupt."""
        view = memoryview(body.data)
        offset, at = body.offset, 0
        while at < len(view):
            try:
                header = parse_header(view, at)
                data = view[at : at + header.length]
                check_crc(data, header)
                if header.is_control or is_gap(header):
                    self._thin(kept)
                    self._take(header, data)
                else:
                    self._wait(_Batch(body, at, offset, header, data, _records(header, data)), kept)
            except InvalidBatch as error:
                raise corrupt(self._partition, body, at, offset, error) from error
            offset += header.count
            at += header.length
        self._thin(kept)

    def finish(self) -> list[bytes]:
        """All that is left of what was added."""
        self._end_gap()
        return self.batches

    def _wait(self, batch: _Batch, kept: Ints) -> None:
        if self._waiting and self._waiting_bytes + len(batch.records) > MAX_BYTES:
            self._thin(kept)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch.records)

    def _take(self, header: BatchHeader, data: memoryview) -> None:
        """As it is."""
        if is_gap(header):
            self._gap += header.count
            return
        self._end_gap()
        self.batches.append(bytes(data))
        self.records += header.record_count

    def _end_gap(self) -> None:
        self.batches += gaps(self._gap)
        self._gap = 0

    def _thin(self, kept: Ints) -> None:
        """What is waiting."""
        batches, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not batches:
            return
        view = np.frombuffer(b"".join(batch.records for batch in batches), np.uint8)
        counts = np.array([batch.header.record_count for batch in batches], np.int64)
        ends = np.cumsum([len(batch.records) for batch in batches])
        starts = np.append(0, ends[:-1])
        deltas = np.array([batch.header.last_offset_delta for batch in batches], np.int64)
        try:
            fields = walk(view, Spans(starts, ends, counts, deltas))
        except Unsound:
            raise self._fault(batches) from None
        offsets = np.repeat(np.array([batch.offset for batch in batches], np.int64), counts) + fields.offset_delta
        is_named = _is_in(kept, offsets) & (fields.key_size >= 0)
        self.survivors += int(is_named.sum())
        stays = is_named | (fields.key_size < 0)
        firsts = np.cumsum(counts) - counts
        left = np.add.reduceat(stays.astype(np.int64), firsts)
        for batch, first, start, count in zip(batches, firsts.tolist(), starts.tolist(), left.tolist(), strict=True):
            header = batch.header
            self.removed += header.record_count - count
            if count == header.record_count:
                self._take(header, batch.data)
            elif not count:
                self._gap += header.count
            else:
                self._end_gap()
                rows = slice(first, first + header.record_count)
                self.batches.append(_thinned(header, count, view, fields, rows, start, stays[rows]))
                self.records += count

    def _fault(self, batches: list[_Batch]) -> Exception:
        """Why records can't be walked, told by one who looks at each."""
        for batch in batches:
            try:
                for _ in iter_records(batch.data):
                    pass
            except InvalidBatch as error:
                return corrupt(self._partition, batch.body, batch.at, batch.offset, error)
        first = batches[0]
        why = "this batch, or one of those after it, is unsound"
        return corrupt(self._partition, first.body, first.at, first.offset, why)


def _thinned(
    header: BatchHeader, count: int, view: Bytes, fields: Fields, rows: slice, start: int, stays: NDArray[np.bool_]
) -> bytes:
    ends = fields.end[rows]
    sizes = np.diff(ends, prepend=start)
    records = view[start : int(ends[-1])][np.repeat(stays, sizes)]
    newest = header.base_timestamp + int(fields.time_delta[rows][stays].max())
    return thinned(header, memoryview(records), count, newest)


def _records(header: BatchHeader, data: memoryview) -> bytes:
    records = decompress(header.compression, data[HEADER_BYTES:], MAX_DECOMPRESSED_BYTES)
    if header.record_count * MIN_RECORD_BYTES > len(records):
        raise InvalidBatch(f"{header.record_count} records, with {len(records)} bytes for all of them")
    return records


def _is_in(kept: Ints, offsets: Ints) -> NDArray[np.bool_]:
    """Both are in order."""
    if not len(kept):
        return np.zeros(len(offsets), np.bool_)
    place = np.minimum(np.searchsorted(kept, offsets), len(kept) - 1)
    return kept[place] == offsets
