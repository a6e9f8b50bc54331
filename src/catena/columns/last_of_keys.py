"""The last record of each key: what a compaction needs to know of a stretch of the log.

A key is known by its hash (`key_hashes`). Rows are in the order of offsets, from the log to the end: so the last of
equal ones is the one that counts, and no offset has to be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from catena.columns.gather import Body
from catena.columns.key_hashes import KeyHashes, Words
from catena.columns.varints import Ints
from catena.columns.walked_batches import Walked, Whole, walked
from catena.formats.opaque import Opaque
from catena.types import TopicPartition

MERGED_ROWS = 2_000_000
"""So many more rows are held before those that are not the last of their keys are let go; twice as many as are left, if
that is more."""

_ONE, _HALF = np.uint64(1), np.uint64(32)
_FACTORS = np.array([pow(0x9E37_79B9_7F4A_7C15, power, 1 << 64) for power in range(1, 13)], np.uint64)
"""Any odd numbers that have little in common."""


class LastOfKeys(NamedTuple):
    """One number of each kind for each record."""

    high: Words
    """Of the key's hash, as is `low`."""
    low: Words
    marked: Words
    """Twice the offset, and one more if the record is the mark of a deleted key. They grow."""

    @property
    def rows(self) -> int:
        return len(self.marked)

    @property
    def offset(self) -> Ints:
        return (self.marked >> _ONE).view(np.int64)

    @property
    def is_tombstone(self) -> NDArray[np.bool_]:
        return (self.marked & _ONE).astype(np.bool_)

    def take(self, rows: Ints) -> LastOfKeys:
        return LastOfKeys(*(column[rows] for column in self))


NONE = LastOfKeys(*[np.empty(0, np.uint64)] * 3)


class KeyFinder:
    """Bodies in, in the order of their offsets; the last record of each key out."""

    def __init__(self, partition: TopicPartition, salt: bytes) -> None:
        self._partition = partition
        self._hashes = KeyHashes(salt)
        self._found: list[LastOfKeys] = []
        self._rows = 0
        self._rows_max = MERGED_ROWS
        self.opaque = Opaque()
        """Batches of which nobody can tell the keys."""

    def add(self, body: Body) -> None:
        """Records without a key are not looked at. Raises Corrupt, with topic, partition, offset and object."""
        for part in walked(body, self._partition):
            if isinstance(part, Whole):
                self.opaque = self.opaque.plus(part.batch.offset) if part.is_opaque else self.opaque
                continue
            rows = self._rows_of(part)
            self._found.append(rows)
            self._rows += rows.rows
            if self._rows > self._rows_max:
                left = self._merge()
                self._found, self._rows = [left], left.rows
                self._rows_max = max(self._rows + MERGED_ROWS, 2 * self._rows)

    def finish(self) -> LastOfKeys:
        return self._merge()

    def _merge(self) -> LastOfKeys:
        joined = join(self._found)
        self._found = []  # they are twice in memory until here, and not while rows are compared
        return only_last(joined)

    def _rows_of(self, part: Walked) -> LastOfKeys:
        fields = part.fields
        marked = part.offsets.view(np.uint64) << _ONE | (fields.value_size < 0)
        at, size = fields.key_at, fields.key_size
        has_key = size >= 0
        if not has_key.all():
            at, size, marked = at[has_key], size[has_key], marked[has_key]
        return LastOfKeys(*self._hashes(part.data, at, size), marked)


def merged(parts: Iterable[LastOfKeys]) -> LastOfKeys:
    """The last of each key over all of these, which come in the order of offsets; so do the rows that are left."""
    return only_last(join(parts))


def join(parts: Iterable[LastOfKeys]) -> LastOfKeys:
    found = [part for part in parts if part.rows]
    return LastOfKeys(*(np.concatenate(columns) for columns in zip(*found, strict=True))) if found else NONE


def only_last(joined: LastOfKeys) -> LastOfKeys:
    rows = last_rows(joined.high, joined.low)
    return joined if len(rows) == joined.rows else joined.take(rows)


def last_rows(high: Words, low: Words) -> Ints:
    """The last row of each hash, in order.

    Rows are put into a table by a part of their hash. What stays in a place is the last row of its hash, since all of
    that hash come there. Those of other hashes that came to the same place are tried again by another part, in a table
    for as many as there are left. What is left in the end, next to nothing, a dictionary finds out.
    """
    is_last = np.zeros(len(high), np.bool_)
    rows = np.arange(len(high), dtype=np.int32 if len(high) < 1 << 31 else np.int64)
    here, other = high, low
    for factor in _FACTORS:
        found = _last_of_places(here, other, rows, factor)
        is_last[found] = True
        differs = high[found] != here
        differs |= low[found] != other
        rows = rows[differs]
        if not len(rows):
            break
        here, other = here[differs], other[differs]
    last = {(int(high[row]), int(low[row])): row for row in rows.tolist()}
    is_last[list(last.values())] = True
    return np.flatnonzero(is_last)


def _last_of_places(high: Words, low: Words, rows: NDArray[np.integer[Any]], factor: np.uint64) -> NDArray[Any]:
    """For each row: the last one that comes to the same place."""
    bits = max(4, (2 * len(rows)).bit_length())
    mixed = low >> _HALF
    mixed ^= high
    mixed *= factor
    mixed >>= np.uint64(64 - bits)
    place = mixed.view(np.int64)
    table = np.empty(1 << bits, rows.dtype)
    table[place] = rows  # of equal places the last one stays
    return table[place]
