"""The columns that every table has, whatever is in the values. Pure.

    _catena   partition, offset, timestamp, timestamp_type, headers
    key       as the producer gave it
    value     as the producer gave it, or a column for each of its fields
    day       of the timestamp, in UTC: what the table is partitioned by

A time that no calendar has is of the first or the last day that there is. A dead letter has `reason` as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catena.columns import schema as topic
from catena.tables.naming import grown

METADATA, KEY, VALUE, REASON, DAY = "_catena", "key", "value", "reason", "day"
PARTITION, OFFSET, TIMESTAMP = "partition", "offset", "timestamp"
RESERVED = (METADATA, KEY, DAY)
"""Names that no field of a value can have."""

METADATA_TYPE = pa.struct(
    [
        pa.field(PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
        pa.field(TIMESTAMP, pa.timestamp("us", "UTC")),
        pa.field("timestamp_type", pa.int32()),
        pa.field("headers", topic.HEADERS_TYPE),
    ]
)
METADATA_FIELD, KEY_FIELD = pa.field(METADATA, METADATA_TYPE), pa.field(KEY, pa.binary())
VALUE_FIELD, REASON_FIELD, DAY_FIELD = (
    pa.field(VALUE, pa.binary()),
    pa.field(REASON, pa.string()),
    pa.field(DAY, pa.date32()),
)
RAW = pa.schema([METADATA_FIELD, KEY_FIELD, VALUE_FIELD, DAY_FIELD])
DEAD_LETTERS = pa.schema([METADATA_FIELD, KEY_FIELD, VALUE_FIELD, REASON_FIELD, DAY_FIELD])

READ = (
    topic.PARTITION,
    topic.OFFSET,
    topic.TIMESTAMP,
    topic.TIMESTAMP_TYPE,
    topic.HEADERS,
    topic.KEY,
    topic.VALUE,
)
"""What is read of a topic; the first of them become the struct."""

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31."""
_DAY_US = 86_400_000_000


def typed(fields: Iterable[Any]) -> pa.Schema:
    """Of a table with a column for each of these fields of values."""
    return evolved(pa.schema([METADATA_FIELD, KEY_FIELD, DAY_FIELD]), fields)


def value_fields(schema: pa.Schema) -> list[Any]:
    return [field for field in schema if field.name not in RESERVED]


def metadata_of(batch: pa.RecordBatch) -> pa.StructArray:
    """Of a batch with the columns READ."""
    columns = [batch.column(name) for name in READ[:5]]
    return pa.StructArray.from_arrays(columns, fields=list(METADATA_TYPE))


def days_of(batch: pa.RecordBatch) -> pa.Array:
    microseconds = batch.column(topic.TIMESTAMP).cast(pa.int64())
    days = pc.floor(pc.divide(microseconds.cast(pa.float64(), safe=False), float(_DAY_US)))
    # A double has no room for all microseconds, and may round up just before midnight.
    whole = days.cast(pa.int64())
    begins = pc.multiply(pc.max_element_wise(pc.min_element_wise(whole, _LAST_DAY), _FIRST_DAY), _DAY_US)
    whole = pc.if_else(pc.greater(begins, microseconds), pc.subtract(whole, 1), whole)
    clipped = pc.max_element_wise(pc.min_element_wise(whole, _LAST_DAY), _FIRST_DAY)
    return clipped.cast(pa.int32()).cast(pa.date32())


def evolved(now: pa.Schema, fields: Iterable[Any]) -> pa.Schema:
    """`now`, with a column for each field of values; see `naming`."""
    before = value_fields(now)
    columns = grown(before, fields, RESERVED)
    changed = {old.name: new for old, new in zip(before, columns, strict=False)}
    kept = [changed.get(column.name, column) for column in now if column.name != DAY]
    return pa.schema([*kept, *columns[len(before) :], now.field(DAY)])
