"""A batch of records to rows of the table and dead letters. Pure.

A column that the values have and the table has not (yet) is left out; one that the table has and the values have not is
null. A value that does not fit the type that its column has in the table is a dead letter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from catena.columns import schema as topic
from catena.tables.columns import DAY, DEAD_LETTERS, KEY, METADATA, RESERVED, days_of, metadata_of
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
        wanted = schema.field(name).type
        if name in RESERVED:
            columns[name] = fixed[name]
        elif name in decoded.columns:
            columns[name] = _fitted(name, decoded.columns[name], wanted, reasons)
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


def _printable(reason: str) -> str:
    """Half a character of a value may be in it, which no column can hold."""
    return reason[:REASON_CHARS_MAX].encode(errors="replace").decode()


def _fitted(name: str, column: Any, wanted: pa.DataType, reasons: dict[int, str]) -> Any:
    """As the table has it."""
    found = fit(column, wanted)
    for place, reason in found.reasons.items():
        reasons.setdefault(place, f"column {name} is {wanted} in the table, and the value does not fit: {reason}")
    return found.column
