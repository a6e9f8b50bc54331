"""Stored batches with the fields of all their records, many at a time, for whoever takes records out of them.

A producer may send nonsense under a right CRC: records that can't be decompressed, or that are not what a header says.
Brokers look at headers only, so such a batch is in the log. It is **opaque**: nobody can tell its keys, and so nobody
may take anything out of it. All stages of a compaction have to agree on it: what one takes for opaque, and another
looks into, would be removed. So they tell it apart here and nowhere else, and compare by `formats.opaque`. Whoever only
reads finds the same ones by `decode`, with the same `records_of` and `walk`.

A batch with a wrong CRC, or with a header that can't be, is damage, and raises Corrupt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from catena.columns.fields import Fields, Spans
from catena.columns.gather import Body, corrupt, records_of
from catena.columns.varints import Bytes, Ints, Unsound
from catena.columns.walking import walk
from catena.errors import InvalidBatch
from catena.formats.record_batch import BatchHeader, check_crc, parse_header
from catena.formats.thinned import is_gap
from catena.types import Offset, TopicPartition

MAX_ROWS = 262_144
MAX_BYTES = 16 << 20
"""Of records, decompressed, that are walked together; one batch may have more."""


class Stored(NamedTuple):
    offset: Offset
    header: BatchHeader
    data: memoryview
    """All of the batch."""


class Whole(NamedTuple):
    """A batch whose records nobody looks at: a control batch, a gap, or one that is opaque."""

    batch: Stored
    is_opaque: bool


class Walked(NamedTuple):
    """Neighbouring batches, each of which has a record at least."""

    batches: Sequence[Stored]
    data: Bytes
    spans: Spans
    """Where in `data` the records of each are."""
    fields: Fields

    @property
    def offsets(self) -> Ints:
        """Of the records."""
        bases = np.array([batch.offset for batch in self.batches], np.int64)
        return np.repeat(bases, self.spans.record_count) + self.fields.offset_delta


_Waiting: TypeAlias = tuple[Stored, memoryview, int, int]
"""A batch, and the bytes that hold its records, from the one number to the other."""


def walked(
    body: Body, partition: TopicPartition, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES
) -> Iterator[Walked | Whole]:
    """All batches of this body, in order. Raises Corrupt, with topic, partition, offset and object."""
    waiting: list[_Waiting] = []
    rows = size = 0
    view = memoryview(body.data)
    for at, batch in _batches(body, view, partition):
        header = batch.header
        records: tuple[memoryview, int, int] | None = None
        is_opaque = False
        if not (header.is_control or is_gap(header)):
            try:
                records = records_of(view, at, at + header.length, header.attributes, header.record_count)
            except InvalidBatch:
                is_opaque = True
        more = 0 if records is None else records[2] - records[1]
        if records is None or rows + header.record_count > max_rows or size + more > max_bytes:
            yield from _walk(waiting)
            waiting, rows, size = [], 0, 0
        if records is None:
            yield Whole(batch, is_opaque)
        else:
            waiting.append((batch, *records))
            rows += header.record_count
            size += more
    yield from _walk(waiting)


def _batches(body: Body, view: memoryview, partition: TopicPartition) -> Iterator[tuple[int, Stored]]:
    """Each with its first byte in the body, of which `view` is one."""
    offset, at = body.offset, 0
    while at < len(view):
        try:
            header = parse_header(view, at)
            data = view[at : at + header.length]
            check_crc(data, header)
        except InvalidBatch as error:
            raise corrupt(partition, body, at, offset, error) from error
        yield at, Stored(offset, header, data)
        offset += header.count
        at += header.length


def _walk(waiting: Sequence[_Waiting]) -> Iterator[Walked | Whole]:
    """Those that are unsound are found by halves: most often there is none, and a walk of many is what is cheap."""
    if not waiting:
        return
    try:
        found: Walked | Whole = _walk_together(waiting)
    except Unsound:
        if len(waiting) > 1:
            middle = len(waiting) // 2
            yield from _walk(waiting[:middle])
            yield from _walk(waiting[middle:])
            return
        found = Whole(waiting[0][0], is_opaque=True)
    yield found


def _walk_together(waiting: Sequence[_Waiting]) -> Walked:
    """What is not compressed stays where it is, headers and all, as long as it is all of one buffer."""
    first = waiting[0][1]
    if all(records is first for _, records, _, _ in waiting):
        data: memoryview = first
        starts = [start for _, _, start, _ in waiting]
        ends = [end for _, _, _, end in waiting]
    else:
        parts = [records[start:end] for _, records, start, end in waiting]
        data = memoryview(b"".join(parts))
        ends = np.cumsum([len(part) for part in parts]).tolist()
        starts = [0, *ends[:-1]]
    view = np.frombuffer(data, np.uint8)
    view.flags.writeable = False  # one type of array, so that the walk is compiled once
    batches = [batch for batch, _, _, _ in waiting]
    spans = Spans(
        np.array(starts, np.int64),
        np.array(ends, np.int64),
        np.array([batch.header.record_count for batch in batches], np.int64),
        np.array([batch.header.last_offset_delta for batch in batches], np.int64),
    )
    return Walked(batches, view, spans, walk(view, spans))
