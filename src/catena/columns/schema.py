"""The columns of a topic: names, types and order of Spark's Kafka source, so that a job can change its format only.

`headers` is null where a record has none. `timestampType` is 0 where producers gave the time, 1 where the broker did. A
record without a time has 1 ms before 1970, as Kafka's -1 reads; a time that microseconds can't hold becomes the last
that they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from catena.errors import ConfigError

KEY, VALUE, TOPIC, PARTITION, OFFSET = "key", "value", "topic", "partition", "offset"
TIMESTAMP, TIMESTAMP_TYPE, HEADERS = "timestamp", "timestampType", "headers"

HEADER_FIELDS = (pa.field("key", pa.string()), pa.field("value", pa.binary()))
HEADERS_TYPE = pa.list_(pa.field("element", pa.struct(HEADER_FIELDS)))
"""Spark calls what a list holds `element`, and refuses a batch that calls it otherwise."""

_TYPES = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: HEADERS_TYPE,
}
COLUMNS = tuple(_TYPES)


def schema_of(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of these columns, in this order."""
    if not columns:
        raise ConfigError("name one column at least: rows of none can't be counted")
    for name in columns:
        if name not in _TYPES:
            raise ConfigError(f"there is no column {name!r}; a topic has {', '.join(COLUMNS)}")
    if len(set(columns)) < len(columns):
        raise ConfigError(f"a column is named twice in {', '.join(columns)}")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])
