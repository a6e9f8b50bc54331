"""The records of many batches at a time: where each field stands is found by numpy, and strings are cut out.

    batches --gather--> chunks --walk--> where each value stands --cut--> what JSON needs

The walk is that of `columns` without numba: loading it would hold up everybody whom this process serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catena.columns.fields import Fields
from catena.columns.gather import Body, Chunk, Wanted, chunks
from catena.columns.varints import Ints, Unsound
from catena.columns.walk_numpy import walk
from catena.loglets.base import Batch
from catena.rest.bodies import MAX_RECORDS, Data, FullRecord, Header
from catena.rest.decoding import Asked, Decoded, text_of
from catena.types import Offset, TopicPartition

CHUNK_ROWS = 16_384
CHUNK_BYTES = 2 << 20
END = 2**63 - 1


def decode_walked(batches: Sequence[Batch], tp: TopicPartition, asked: Asked) -> Decoded:
    wanted = Wanted(asked.start, END, CHUNK_ROWS, CHUNK_BYTES, False, False, False)
    records: list[Any] = []
    told: list[Ints] = []
    size = 0
    following = batches[-1].end if batches else asked.start
    for chunk in chunks((Body(batch.data, batch.offset) for batch in batches), tp, wanted):
        rows = _Rows(chunk)
        first = int(np.searchsorted(rows.offsets, asked.start))
        sizes = rows.sizes(asked.details)[first:]
        reached = np.cumsum(sizes)
        fits = int(np.searchsorted(reached, asked.max_bytes - size, "right"))
        if not fits and not records and asked.at_least_one:
            fits = 1
        last = first + min(fits, len(sizes), MAX_RECORDS - len(records))
        if last > first:
            size += int(reached[last - first - 1])
            records += rows.in_full(first, last) if asked.details else rows.values(first, last)
            told.append(rows.offsets[first:last])
        if last < len(rows.offsets):
            following = int(rows.offsets[last])
            break
    offsets = np.concatenate(told) if told else np.empty(0, np.int64)
    if not len(offsets):
        return Decoded([], asked.start, following, None, 0)
    in_a_row = int(offsets[-1] - offsets[0]) + 1 == len(offsets)
    return Decoded(records, int(offsets[0]), following, None if in_a_row else offsets.tolist(), size)


class _Rows:
    """The records of a chunk."""

    def __init__(self, chunk: Chunk) -> None:
        spans, offset, self._time, self._is_append_time = chunk.numbers()
        self._data = chunk.data()
        view = np.frombuffer(self._data, np.uint8)
        try:
            self._fields: Fields = walk(view, spans)
        except Unsound:
            raise chunk.fault() from None
        self._counts = spans.record_count
        self.offsets: Ints = np.repeat(offset, self._counts) + self._fields.offset_delta

    def sizes(self, details: bool) -> Ints:
        """Bytes of what is told of each."""
        if details:
            return np.diff(self._fields.end, prepend=0)
        return np.maximum(self._fields.value_size, 0)

    def values(self, first: int, last: int) -> list[Data]:
        return self._cut(self._fields.value_at[first:last], self._fields.value_size[first:last])

    def in_full(self, first: int, last: int) -> list[FullRecord]:
        fields = self._fields
        deltas = np.where(np.repeat(self._is_append_time, self._counts) != 0, 0, fields.time_delta)
        times: list[int] = (np.repeat(self._time, self._counts) + deltas)[first:last].tolist()
        keys = self._cut(fields.key_at[first:last], fields.key_size[first:last])
        offsets: list[Offset] = self.offsets[first:last].tolist()
        rows = zip(offsets, times, keys, self.values(first, last), self._headers(first, last), strict=True)
        return [FullRecord(*row) for row in rows]

    def _headers(self, first: int, last: int) -> list[tuple[Header, ...]]:
        counts = self._fields.header_count
        start, total = int(counts[:first].sum()), int(counts[first:last].sum())
        name_at, name_size, value_at, value_size = (field[start : start + total] for field in self._fields.headers)
        spans = zip(name_at.tolist(), name_size.tolist(), strict=True)
        names = [str(self._data[at : at + size], "utf-8", "replace") for at, size in spans]
        headers = [Header(name, value) for name, value in zip(names, self._cut(value_at, value_size), strict=True)]
        ends = np.cumsum(counts[first:last]).tolist()
        return [tuple(headers[end - count : end]) for end, count in zip(ends, counts[first:last].tolist(), strict=True)]

    def _cut(self, at: Ints, size: Ints) -> list[Data]:
        """The fields that stand there. Most are ASCII: then they are slices of one string, made of all the bytes."""
        starts: list[int] = at.tolist()
        ends: list[int] = (at + np.maximum(size, 0)).tolist()
        text = str(self._data, "latin-1")
        found: list[Any] = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        if not "".join(found).isascii():
            data = bytes(self._data)
            found = [text_of(data[start:end]) for start, end in zip(starts, ends, strict=True)]
        for row in np.flatnonzero(size < 0).tolist():
            found[row] = None
        return found
