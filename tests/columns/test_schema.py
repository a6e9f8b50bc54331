from __future__ import annotations

import pyarrow as pa
import pytest

from catena.columns.schema import COLUMNS, schema_of
from catena.errors import ConfigError


def test_columns_are_those_of_sparks_kafka_source() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert schema_of() == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.field("element", header))),
        ]
    )


def test_spark_makes_the_same_of_its_own_types() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    arrow = pytest.importorskip("pyspark.sql.pandas.types")
    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    spark = (
        types.StructType()
        .add("key", types.BinaryType())
        .add("value", types.BinaryType())
        .add("topic", types.StringType())
        .add("partition", types.IntegerType())
        .add("offset", types.LongType())
        .add("timestamp", types.TimestampType())
        .add("timestampType", types.IntegerType())
        .add("headers", types.ArrayType(header))
    )
    assert arrow.to_arrow_schema(spark, timezone="UTC").equals(schema_of())


def test_some_columns_in_another_order() -> None:
    assert schema_of(["offset", "key"]).names == ["offset", "key"]


def test_what_is_no_column() -> None:
    with pytest.raises(ConfigError, match="there is no column 'Key'; a topic has key, value, topic"):
        schema_of([*COLUMNS, "Key"])
    with pytest.raises(ConfigError, match="one column at least"):
        schema_of([])
    with pytest.raises(ConfigError, match="named twice in key, offset, key"):
        schema_of(["key", "offset", "key"])
