"""Take records out of stored batches, many at a time; see `catena.formats.thinned` for what is left of a batch.

Whoever compacts names the offsets of the records that stay. Records without a key stay, too: no later one takes their
place. So do control batches, and those that are opaque (`walked_batches`). A batch that loses nothing keeps its bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catena.columns.decode import cut_binary
from catena.columns.gather import Body
from catena.columns.varints import Ints
from catena.columns.walked_batches import Stored, Walked, Whole, walked
from catena.formats.opaque import Opaque
from catena.formats.thinned import gaps, is_gap, thinned
from catena.types import Buffer, TopicPartition

DENSE = 16
"""Where so many offsets have one record at the least, a table of all is faster than a search for each."""

_INT64_MIN = -(2**63)


class Thinner:
    """Bodies in, in the order of their offsets; the batches that are left out."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._gap = 0
        self.batches: list[bytes] = []
        self.records = 0
        """That are left; of opaque batches, as many as they say."""
        self.survivors = 0
        """Of those, how many were named."""
        self.removed = 0
        self.opaque = Opaque()

    def add(self, body: Body, kept: Ints) -> None:
        """Of its records with a key, those with these offsets stay; they are in order. Raises Corrupt."""
        for part in walked(body, self._partition):
            if isinstance(part, Whole):
                self.opaque = self.opaque.plus(part.batch.offset) if part.is_opaque else self.opaque
                self._take(part.batch)
            else:
                self._thin(part, kept)

    def finish(self) -> list[bytes]:
        """All that is left of what was added."""
        self._end_gap()
        return self.batches

    def _take(self, batch: Stored) -> None:
        """As it is."""
        if is_gap(batch.header):
            self._gap += batch.header.count
            return
        self._end_gap()
        self.batches.append(bytes(batch.data))
        self.records += batch.header.record_count

    def _end_gap(self) -> None:
        self.batches += gaps(self._gap)
        self._gap = 0

    def _thin(self, part: Walked, kept: Ints) -> None:
        has_key = part.fields.key_size >= 0
        is_named = _is_in(kept, part.offsets) & has_key
        self.survivors += int(np.count_nonzero(is_named))
        stays = is_named | ~has_key
        counts = part.spans.record_count
        firsts = np.cumsum(counts) - counts
        left = np.add.reduceat(stays, firsts, dtype=np.int64)
        cut = _Cut(part, stays, firsts, left) if ((left > 0) & (left < counts)).any() else None
        for number, (batch, count) in enumerate(zip(part.batches, left.tolist(), strict=True)):
            header = batch.header
            self.removed += header.record_count - count
            if count == header.record_count:
                self._take(batch)
            elif not count:
                self._gap += header.count
            else:
                assert cut is not None
                self._end_gap()
                newest = header.base_timestamp + cut.newest[number]
                self.batches.append(thinned(header, cut.records(number), count, newest))
                self.records += count


class _Cut:
    """The records that stay, of those batches that lose some and not all, side by side."""

    def __init__(self, part: Walked, stays: NDArray[np.bool_], firsts: Ints, left: Ints) -> None:
        fields, counts = part.fields, part.spans.record_count
        starts = np.empty(len(fields.end), np.int64)
        starts[1:] = fields.end[:-1]
        starts[firsts] = part.spans.start
        is_cut = (left > 0) & (left < counts)
        rows = np.flatnonzero(stays & np.repeat(is_cut, counts))
        sizes = fields.end[rows] - starts[rows]
        taken = cut_binary(pa.py_buffer(part.data), starts[rows], sizes)
        self._data = memoryview(taken.buffers()[2])
        ends_of_rows = np.append(0, np.cumsum(sizes))
        ends = np.cumsum(np.where(is_cut, left, 0))
        self._ends: list[int] = ends_of_rows[ends].tolist()
        times = np.where(stays, fields.time_delta, _INT64_MIN)
        self.newest: list[int] = np.maximum.reduceat(times, firsts).tolist()
        """Of each batch: the greatest distance of a time to that of its first record."""

    def records(self, number: int) -> Buffer:
        return self._data[self._ends[number - 1] if number else 0 : self._ends[number]]


def _is_in(kept: Ints, offsets: Ints) -> NDArray[np.bool_]:
    """Both are in order."""
    first, last = int(offsets[0]), int(offsets[-1])
    low, high = np.searchsorted(kept, (first, last + 1)).tolist()
    kept = kept[low:high]
    if not len(kept):
        return np.zeros(len(offsets), np.bool_)
    if last - first < DENSE * len(offsets):
        table = np.zeros(last - first + 1, np.bool_)
        table[kept - first] = True
        return table[offsets - first]
    place = np.minimum(np.searchsorted(kept, offsets), len(kept) - 1)
    return kept[place] == offsets
