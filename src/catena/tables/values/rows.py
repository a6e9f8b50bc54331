"""A batch of records to rows of the table and dead letters; one that can't be decoded to one dead letter. Pure.

A field that has no column in the table (yet) is left out; a column whose field the values have not is null. A value
that does not fit the type that its column has in the table is a dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from catena.columns import schema as topic
from catena.columns.decode import MAX_MS, MIN_MS
from catena.columns.gather import OpaqueBatch
from catena.formats.record_batch import patched
from catena.tables.columns import DAY, DEAD_LETTERS, KEY, METADATA, READ, RESERVED, days_of, metadata_of
from catena.tables.naming import source_of
from catena.tables.values.base import Decoder
from catena.tables.values.fitting import fit

REASON_CHARS_MAX = 500


class Converted(NamedTuple):
    rows: pa.Table
    """With the day, whether or not files have it."""
    dead_letters: pa.Table


def convert(batch: pa.RecordBatch, decoder: Decoder, schema: pa.Schema) -> Converted:
    values = batch.column(topic.VALUE)
    decoded = decoder.decode(values)
    reasons = dict(decoded.reasons)
    fixed = {METADATA: metadata_of(batch), KEY: batch.column(topic.KEY), DAY: days_of(batch)}
    names = [name for name in schema.names if name != DAY]
    columns: dict[str, Any] = {}
    for name in names:
        wanted, field = schema.field(name).type, source_of(schema.field(name))
        if name in RESERVED:
            columns[name] = fixed[name]
        elif field in decoded.columns:
            columns[name] = _fitted(name, decoded.columns[field], wanted, reasons)
        else:
            columns[name] = pa.nulls(batch.num_rows, wanted)
    rows = pa.table({**columns, DAY: fixed[DAY]})
    if not reasons:
        return Converted(rows, DEAD_LETTERS.empty_table())
    bad = sorted(reasons)
    dead = pa.table(
        [
            fixed[METADATA].take(pa.array(bad)),
            fixed[KEY].take(pa.array(bad)),
            values.take(pa.array(bad)),
            pa.array([_printable(reasons[place]) for place in bad], pa.string()),
            fixed[DAY].take(pa.array(bad)),
        ],
        schema=DEAD_LETTERS,
    )
    good = pc.invert(pc.is_in(pa.array(range(batch.num_rows)), pa.array(bad)))
    return Converted(rows.filter(good), dead)


def opaque_letters(batches: Sequence[OpaqueBatch], partition: int) -> pa.Table:
    """A dead letter for each batch that can't be decoded: at its first offset, with its greatest time. The value is all
    of the batch, as a consumer would get it."""
    times = [max(MIN_MS, min(MAX_MS, batch.header.max_timestamp)) * 1000 for batch in batches]
    columns: dict[str, Any] = {
        topic.PARTITION: pa.array([partition] * len(batches), pa.int32()),
        topic.OFFSET: pa.array([batch.offset for batch in batches], pa.int64()),
        topic.TIMESTAMP: pa.array(times, pa.int64()).view(pa.timestamp("us", "UTC")),
        topic.TIMESTAMP_TYPE: pa.array([int(batch.header.log_append_time) for batch in batches], pa.int32()),
        topic.HEADERS: pa.nulls(len(batches), topic.HEADERS_TYPE),
        topic.KEY: pa.nulls(len(batches), pa.binary()),
        topic.VALUE: pa.array(
            [patched(batch.data, batch.offset, batch.header.leader_epoch) for batch in batches], pa.binary()
        ),
    }
    rows = pa.RecordBatch.from_arrays([columns[name] for name in READ], names=list(READ))
    reasons = [
        _printable(f"offsets {batch.offset} to {batch.last} are a batch that can't be decoded: {batch.fault}")
        for batch in batches
    ]
    return pa.table(
        [metadata_of(rows), columns[topic.KEY], columns[topic.VALUE], pa.array(reasons, pa.string()), days_of(rows)],
        schema=DEAD_LETTERS,
    )


def _printable(reason: str) -> str:
    """Half a character of a value may be in it, which no column can hold."""
    return reason[:REASON_CHARS_MAX].encode(errors="replace").decode()


def _fitted(name: str, column: Any, wanted: pa.DataType, reasons: dict[int, str]) -> Any:
    """As the table has it."""
    found = fit(column, wanted)
    for place, reason in found.reasons.items():
        reasons.setdefault(place, f"column {name} is {wanted} in the table, and the value does not fit: {reason}")
    return found.column
