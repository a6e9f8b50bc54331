"""Batch queries on real Spark: the rows of the log, by any of its options."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import catena
from catena.formats.record_batch import parse_header
from catena.loglets.base import Entry
from tests.columns.nonsense import nonsense
from tests.source.world import START_MS, Row, fill, rows_in, tier
from tests.sparks import LOCAL, Sparks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)
HEADERS = "headers:array<struct<key:string,value:binary>>>"


@pytest.fixture
def spark(sparks: Sparks) -> SparkSession:
    return sparks.get(LOCAL)


def load(spark: SparkSession, folder: Path, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("catena").options(data=str(folder), subscribe="orders", **options)
    return (reader if schema is None else reader.schema(schema)).load()


def collect(frame: DataFrame) -> list[Row]:
    found = frame.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    for row in found:
        assert (row.topic, row.timestampType) == ("orders", 0)
    rows = [
        Row(row.partition, row.offset, _bytes(row.key), _bytes(row.value), row.ms, _headers(row.headers))
        for row in found
    ]
    return sorted(rows, key=lambda row: row[:2])


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _headers(headers: Sequence[Any] | None) -> list[tuple[str, bytes | None]]:
    return [(each.key, _bytes(each.value)) for each in headers or []]


def test_rows_are_those_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """All compressions, tiered and not; what was acked a moment ago is there; a filter changes no later count."""
    asyncio.run(fill(tmp_path))
    asyncio.run(tier(tmp_path))
    asyncio.run(fill(tmp_path, start=50))
    expected = asyncio.run(rows_in(tmp_path))
    assert len(expected) == 300
    frame = load(spark, tmp_path, includeHeaders="true")
    assert frame.schema.simpleString() == SCHEMA[:-1] + "," + HEADERS
    assert load(spark, tmp_path).schema.simpleString() == SCHEMA
    assert collect(frame) == expected
    assert frame.filter("offset >= 90").count() == 30
    assert frame.count() == 300
    narrow = load(spark, tmp_path, "offset bigint, partition int", minPartitions=8)
    assert narrow.columns == ["offset", "partition"]
    assert sorted((row.partition, row.offset) for row in narrow.collect()) == [row[:2] for row in expected]


async def _trim(folder: Path, offset: int) -> None:
    async with catena.open(folder) as log:
        await log.trim("orders", offset)


async def _create(folder: Path) -> None:
    async with catena.open(folder) as log:
        await log.create_topic("orders")


@pytest.mark.long
def test_a_batch_that_can_not_be_decoded(spark: SparkSession, tmp_path: Path) -> None:
    """An error that says where, unless it is to be left out; then counts agree, whatever they need to read."""
    asyncio.run(fill(tmp_path, partitions=1))
    before = len(asyncio.run(rows_in(tmp_path)))
    asyncio.run(append_nonsense(tmp_path))
    asyncio.run(fill(tmp_path, partitions=1, start=50))
    with pytest.raises(Exception, match=f"topic orders, partition 0, the batch at offset {before}, object "):
        load(spark, tmp_path).select("value").collect()
    lenient = load(spark, tmp_path, failOnUndecodableBatch=False)
    offsets = [*range(before), *range(before + 3, 2 * before + 3)]
    assert sorted(row.offset for row in lenient.collect()) == offsets
    assert lenient.count() == len(offsets)
    narrow = load(spark, tmp_path, "offset bigint", failOnUndecodableBatch=False)
    assert narrow.count() == len(offsets)


async def append_nonsense(folder: Path) -> None:
    async with catena.open(folder) as log:
        data = nonsense(3)
        await log.node.open_log(await log.topic("orders"), 0).append(Entry(parse_header(data), data))


def test_limits(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))

    def offsets(**options: Any) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in load(spark, tmp_path, "partition int, offset bigint", **options).collect():
            found.setdefault(row.partition, []).append(row.offset)
        return {number: sorted(each) for number, each in found.items()}

    times = {"startingTimestamp": START_MS + 20, "endingTimestamp": START_MS + 23}
    assert offsets(**times) == {number: [20, 21, 22] for number in range(3)}
    assert offsets(
        startingOffsets='{"orders": {"0": 48, "1": 0, "2": 49}}', endingOffsets='{"orders": {"0": -1, "1": 2, "2": 49}}'
    ) == {0: [48, 49], 1: [0, 1]}
    asyncio.run(_trim(tmp_path, 47))
    assert offsets()[0] == [47, 48, 49]
    old = '{"orders": {"0": 0, "1": 50, "2": 50}}'
    assert offsets(startingOffsets=old, failOnDataLoss="false") == {0: [47, 48, 49]}
    with pytest.raises(Exception, match="offset 0 of orders/0 is outside of its log"):
        offsets(startingOffsets=old)


@pytest.mark.long
def test_a_plan_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(_create(tmp_path))
    assert load(spark, tmp_path).collect() == []


def test_what_spark_makes_of_a_plan_without_rows(can_spark: None) -> None:
    from pyspark.sql.datasource import InputPartition

    from catena.source.options import parse_batch
    from catena.source.spark.readers import BatchReader

    reader = BatchReader(parse_batch({"subscribe": "orders"}), ["offset"])
    assert [list(reader.read(each)) for each in (None, InputPartition(None))] == [[], []]


@pytest.mark.long
@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        (None, {"startingOffset": "earliest"}, "(?i)option startingOffset is not known; was startingOffsets meant"),
        (None, {"startingOffsets": "latest"}, "a batch query can't begin at latest"),
        ("offset int", {}, "column offset is bigint, not int"),
        ("offsets bigint", {}, "there is no column 'offsets'"),
        ("offset bigint not null", {}, "column offset can't be NOT NULL"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, tmp_path: Path, schema: str | None, options: dict[str, str], told: str
) -> None:
    asyncio.run(_create(tmp_path))
    with pytest.raises(Exception, match=told):
        load(spark, tmp_path, schema, **options).collect()


@pytest.mark.long
def test_a_frame_is_planned_once(spark: SparkSession, tmp_path: Path) -> None:
    """When it is first used; what is acked later is in another one."""
    asyncio.run(fill(tmp_path, 1, 2))
    frame = load(spark, tmp_path)
    asyncio.run(fill(tmp_path, 1, 2, 10))
    assert frame.count() == 20
    asyncio.run(fill(tmp_path, 1, 2, 20))
    assert frame.count() == 20
    assert load(spark, tmp_path).count() == 30
