"""Writes on real Spark: what a DataFrame has is in the log once, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import catena
import catena.source
from catena.cli.partitioning import partition_of
from tests.source.world import START_MS, Row, fill, rows_in
from tests.sparks import CLUSTER, LOCAL, Sparks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

END_MAX_S = 100
MAX_STEPS = 60


@pytest.fixture
def spark(sparks: Sparks) -> SparkSession:
    return sparks.get(LOCAL)


async def _create(folder: Path, topics: Mapping[str, int]) -> None:
    async with catena.open(folder) as log:
        for topic, partitions in topics.items():
            await log.create_topic(topic, partitions)


def create(folder: Path, **topics: int) -> None:
    asyncio.run(_create(folder, topics))


def rows(folder: Path, topic: str) -> list[Row]:
    return asyncio.run(rows_in(folder, topic))


def write(frame: DataFrame, folder: Path, **options: Any) -> None:
    frame.write.format("catena").options(data=str(folder), **options).mode("append").save()


def numbers(spark: SparkSession, start: int, end: int, tasks: int = 2) -> DataFrame:
    return spark.range(start, end, 1, tasks).selectExpr("cast(id as string) as key", "concat('v', id) as value")


def test_all_columns(spark: SparkSession, tmp_path: Path) -> None:
    """And what has no such column: keys as Kafka's clients hash them, the time of the task, no headers."""
    create(tmp_path, orders=3, others=2, keyed=2)
    frame = spark.range(0, 20, 1, 2).selectExpr(
        "case when id % 5 > 0 then cast(concat('k', id) as binary) end as key",
        "case when id % 7 > 0 then concat('v', id) end as value",
        "if(id < 18, 'orders', 'others') as topic",
        "cast(if(id % 3 = 0, null, 1) as int) as partition",
        f"timestamp_millis({START_MS} + id) as timestamp",
        "if(id % 2 = 0, array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))), null) as headers",
        "id as offset",
    )
    write(frame, tmp_path)
    found = {row.timestamp_ms - START_MS: row for topic in ("orders", "others") for row in rows(tmp_path, topic)}
    assert sorted(found) == list(range(20))
    for number, row in found.items():
        count = 3 if number < 18 else 2
        assert row.key == (f"k{number}".encode() if number % 5 else None)
        assert row.value == (f"v{number}".encode() if number % 7 else None)
        assert row.headers == ([("n", f"{number}".encode())] if number % 2 == 0 else [])
        if number % 3:
            assert row.partition == 1
        elif row.key is not None:
            assert row.partition == partition_of(row.key, count)
    assert len(rows(tmp_path, "others")) == 2
    write(numbers(spark, 0, 50), tmp_path, topic="keyed")
    keyed = rows(tmp_path, "keyed")
    assert sorted(row.value or b"" for row in keyed) == sorted(f"v{number}".encode() for number in range(50))
    for row in keyed:
        assert row.key is not None
        assert row.partition == partition_of(row.key, 2)
        assert row.headers == []
        assert row.timestamp_ms > START_MS


def copy(spark: SparkSession, folder: Path, sink: str = "catena", limit: int = 20, **options: Any) -> None:
    """Stream what is in `orders` into `copy`, partition by partition, to the end; in one batch before Spark 4.2, whose
    sources have no limits."""
    limits = {"maxOffsetsPerTrigger": limit} if find_spec("pyspark.sql.streaming.datasource") is not None else {}
    frame = (
        spark.readStream.format("catena")
        .options(data=str(folder), subscribe="orders", startingOffsets="earliest", includeHeaders="true", **limits)
        .load()
    )
    query = (
        frame.drop("topic")
        .writeStream.format(sink)
        .options(data=str(folder), topic="copy", checkpointLocation=str(folder / "checkpoint"), **options)
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(END_MAX_S)
    finally:
        query.stop()


def test_a_stream_whose_commits_are_killed_writes_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    """After its intent is published, and before all of its records are in the logs."""
    from tests.source.mortal_writes import MortalSource

    spark.dataSource.register(MortalSource)
    asyncio.run(fill(tmp_path, 2, 2))
    create(tmp_path, copy=2)
    with pytest.raises(Exception, match=r"(?i)exit|crash|EOF|killed|reset"):
        copy(spark, tmp_path, "mortal", 1000, killAtStep=3)
    assert rows(tmp_path, "copy") == []
    copy(spark, tmp_path, limit=1000)
    assert rows(tmp_path, "copy") == rows(tmp_path, "orders")


def test_a_task_that_fails_leaves_nothing_visible(spark: SparkSession, tmp_path: Path) -> None:
    create(tmp_path, orders=2)
    frame = numbers(spark, 0, 1000).selectExpr("key", "if(key = '990', raise_error('no'), value) as value")
    with pytest.raises(Exception, match="no"):
        write(frame, tmp_path, topic="orders")
    bad = numbers(spark, 0, 1000).selectExpr("value", "cast(if(key = '990', 2, 0) as int) as partition")
    with pytest.raises(Exception, match="partitions 0 to 1, not 2"):
        write(bad, tmp_path, topic="orders")
    assert rows(tmp_path, "orders") == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_commit_is_killed_at_each_step(spark: SparkSession, tmp_path: Path) -> None:
    from tests.source.mortal_writes import MortalSource

    spark.dataSource.register(MortalSource)
    asyncio.run(fill(tmp_path, 2, 2))
    create(tmp_path, copy=2)
    for step in range(MAX_STEPS):
        asyncio.run(fill(tmp_path, 2, 2, 10 * (step + 1)))
        try:
            copy(spark, tmp_path, "mortal", 1000, killAtStep=step)
        except Exception:
            copy(spark, tmp_path)
        else:
            assert step > 5
            assert rows(tmp_path, "copy") == rows(tmp_path, "orders")
            return
        assert rows(tmp_path, "copy") == rows(tmp_path, "orders"), f"step {step}"
    raise AssertionError("it takes more and more steps")


@pytest.mark.long
def test_a_version_of_an_application_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    create(tmp_path, orders=1)
    for version, start in ((3, 0), (3, 10), (2, 20), (4, 30)):
        write(numbers(spark, start, start + 5), tmp_path, topic="orders", txnAppId="job", txnVersion=version)
    assert [row.value for row in rows(tmp_path, "orders")] == [
        f"v{number}".encode() for number in (*range(5), *range(30, 35))
    ]
    for _ in range(2):
        write(numbers(spark, 0, 1, 1), tmp_path, topic="orders")
    assert len(rows(tmp_path, "orders")) == 12


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (["key"], {"topic": "orders"}, "there is no column value"),
        (["value"], {}, "nothing says which topic to write to"),
        (["value"], {"topic": "gone"}, "there is no topic 'gone'"),
        (["cast(1 as int) as value"], {"topic": "orders"}, "column value is string or binary, not int"),
        (["value", "1L as partition"], {"topic": "orders"}, "column partition is int, not bigint"),
        (["value", "cast(null as string) as topic"], {}, "column topic is null, and there is no option topic"),
        (["value", "'gone' as topic"], {}, "there is no topic 'gone'"),
        (["value"], {"topic": "orders", "txnAppId": "a"}, "option txnAppId needs txnVersion"),
        (["value"], {"topic": "orders", "partitions": "3"}, "option partitions is not known"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, tmp_path: Path, columns: list[str], options: dict[str, str], told: str
) -> None:
    create(tmp_path, orders=1)
    with pytest.raises(Exception, match=told):
        write(numbers(spark, 0, 3).selectExpr(*columns), tmp_path, **options)
    with pytest.raises(Exception, match="a log is only ever appended to"):
        numbers(spark, 0, 3).write.format("catena").options(data=str(tmp_path), topic="orders").mode("overwrite").save()
    assert rows(tmp_path, "orders") == []


@pytest.mark.long
def test_through_connect(sparks: Sparks, tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    create(tmp_path, orders=2)
    remote: Any = RemoteSession.builder.remote(sparks.remote).create()
    try:
        catena.source.register(remote)
        write(numbers(remote, 0, 100), tmp_path, topic="orders")
    finally:
        remote.stop()
    assert sorted(row.value or b"" for row in rows(tmp_path, "orders")) == sorted(
        f"v{number}".encode() for number in range(100)
    )


@pytest.mark.long
def test_executors_of_their_own_write(sparks: Sparks, tmp_path: Path) -> None:
    cluster = sparks.get(CLUSTER)
    asyncio.run(fill(tmp_path, 2, 20))
    create(tmp_path, copy=2)
    copy(cluster, tmp_path, limit=40)
    assert rows(tmp_path, "copy") == rows(tmp_path, "orders")
