"""Where the fields of records stand. A walk goes over records and makes `Fields`; columns are cut out with them.

There are two walks with one contract, `walk(data, spans) -> Fields`: `walk_compiled` where numba is installed, and
`walk_numpy`. Both refuse, with Unsound, exactly what `catena.formats.records.iter_records` refuses, but for names of
headers that are no UTF-8: every byte between `start` and `end` of a span belongs to one of its records, no field
reaches out of its record, offsets grow and end within the batch.
"""

from __future__ import annotations

from typing import NamedTuple

from catena.columns.varints import Ints

MIN_RECORD_BYTES = 7
"""Each of its seven numbers takes a byte at least; a batch that claims more records than that allows is refused before
anything is made for them."""


class Spans(NamedTuple):
    """Batches whose records are in `data`, one number of each kind for each; `start` and `end` are bytes of it."""

    start: Ints
    end: Ints
    record_count: Ints
    last_delta: Ints
    """No record's offset is further from the first."""


class HeaderFields(NamedTuple):
    """One number of each kind for each header, in the order of the records."""

    name_at: Ints
    name_size: Ints
    value_at: Ints
    value_size: Ints


class Fields(NamedTuple):
    """One number of each kind for each record. A size of -1 stands for null."""

    end: Ints
    """The byte after the record."""
    time_delta: Ints
    offset_delta: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    header_count: Ints
    headers: HeaderFields
