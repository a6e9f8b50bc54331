"""The data source `catena`, as Spark makes and asks it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from catena.columns import schema as columns
from catena.errors import ConfigError
from catena.source.options import parse_batch, parse_stream, wants_headers
from catena.source.spark.readers import BatchReader, StreamReader, open_stream_reader
from catena.source.spark.writers import BatchWriter, StreamWriter
from catena.source.write_options import parse_batch_write, parse_stream_write

FORMAT = "catena"

TYPES = {
    columns.KEY: "binary",
    columns.VALUE: "binary",
    columns.TOPIC: "string",
    columns.PARTITION: "int",
    columns.OFFSET: "bigint",
    columns.TIMESTAMP: "timestamp",
    columns.TIMESTAMP_TYPE: "int",
    columns.HEADERS: "array<struct<key:string,value:binary>>",
}
"""Of Spark's Kafka source, in its order."""


class CatenaSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """Headers are a column only if they are asked for, as in Spark's Kafka source."""
        has_headers = wants_headers(self.options)
        return ", ".join(f"{name} {type_}" for name, type_ in TYPES.items() if name != columns.HEADERS or has_headers)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(parse_batch(self.options), columns_of(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return open_stream_reader(parse_stream(self.options), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(parse_batch_write(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(parse_stream_write(self.options), schema, overwrite)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The names of its columns. Whoever gives a schema may leave some out, and change their order."""
    for field in schema.fields:
        type_ = TYPES.get(field.name)
        if type_ is None:
            raise ConfigError(f"schema: there is no column {field.name!r}; a topic has {', '.join(TYPES)}")
        if field.dataType.simpleString() != type_:
            raise ConfigError(f"schema: column {field.name} is {type_}, not {field.dataType.simpleString()}")
        if not field.nullable:
            raise ConfigError(f"schema: column {field.name} can't be NOT NULL")
    if not schema.fields:
        raise ConfigError("schema: name one column at least: rows of none can't be counted")
    return tuple(schema.fieldNames())
