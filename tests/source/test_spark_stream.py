"""Streams on real Spark: through restarts each record comes once, in batches of the size that was asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import catena
from catena.errors import ConfigError
from catena.source.options import parse_stream
from tests.source.world import fill, rows_in
from tests.sparks import LOCAL, Sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

END_MAX_S = 60


class Query:
    """A stream into a folder of files, which has each batch once; it can be run again and again."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._log = folder / "log"
        self._out = folder / "out"
        self._checkpoint = folder / "checkpoint"

    def run(self, **options: Any) -> list[int]:
        """Up to where the log ends now. Returns the rows of each batch."""
        query = self._start({"availableNow": True}, options)
        try:
            assert query.awaitTermination(END_MAX_S)
            return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        finally:
            query.stop()

    def interrupt(self, after_s: float, **options: Any) -> None:
        """Begin to read all that comes, and be stopped wherever it is then."""
        query = self._start({"processingTime": "0 seconds"}, options)
        assert not query.awaitTermination(after_s)
        query.stop()

    def _start(self, trigger: dict[str, Any], options: dict[str, Any]) -> StreamingQuery:
        given = {"data": str(self._log), "subscribe": "orders", "startingOffsets": "earliest", **options}
        frame = self._spark.readStream.format("catena").options(**given).load()
        return (
            frame.selectExpr("partition", "offset", "value")
            .writeStream.format("parquet")
            .option("path", str(self._out))
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**trigger)
            .start()
        )

    def rows(self) -> list[tuple[int, int, bytes | None]]:
        found = self._spark.read.schema("partition int, offset bigint, value binary").parquet(str(self._out)).collect()
        rows = [(row.partition, row.offset, None if row.value is None else bytes(row.value)) for row in found]
        return sorted(rows, key=lambda row: row[:2])


@pytest.fixture
def query(sparks: Sparks, tmp_path: Path) -> Query:
    return Query(sparks.get(LOCAL), tmp_path)


def expected(folder: Path) -> list[tuple[int, int, bytes | None]]:
    return [(row.partition, row.offset, row.value) for row in asyncio.run(rows_in(folder / "log"))]


def test_each_record_comes_once_through_a_restart(query: Query, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "log", 2, 4))
    batches = query.run(maxOffsetsPerTrigger=16)
    assert sum(batches) == 40
    assert len(batches) == 3
    assert max(batches) <= 18
    assert query.rows() == expected(tmp_path)
    asyncio.run(fill(tmp_path / "log", 2, 1, 20))
    assert query.run() == [10]
    assert query.rows() == expected(tmp_path)


@pytest.mark.long
def test_each_record_comes_once_wherever_it_is_stopped(query: Query, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "log", 2, 4))
    for number in range(1, 11):
        query.interrupt(0.4 * number, maxOffsetsPerTrigger=6)
        asyncio.run(fill(tmp_path / "log", 2, 4, 20 * number))
    query.run()
    assert query.rows() == expected(tmp_path)


async def _trim(folder: Path, offset: int) -> None:
    async with catena.open(folder) as log:
        await log.trim("orders", offset)


async def _delete(folder: Path) -> None:
    async with catena.open(folder) as log:
        await log.delete_topic("orders")


@pytest.mark.long
def test_a_run_with_nothing_new_reads_nothing(query: Query, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "log", 1, 1))
    assert query.run(startingOffsets="latest") == []
    assert query.run() == []
    asyncio.run(fill(tmp_path / "log", 1, 1, 5))
    assert query.run() == [5]


@pytest.mark.long
def test_what_was_trimmed_is_an_error_or_left_out(query: Query, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "log", 1, 2))
    assert query.run() == [10]
    asyncio.run(fill(tmp_path / "log", 1, 2, 10))
    asyncio.run(_trim(tmp_path / "log", 15))
    with pytest.raises(Exception, match="orders/0 was trimmed: its offsets 10 to 14 can't be read"):
        query.run()
    assert query.run(failOnDataLoss="false") == [5]
    assert [offset for _, offset, _ in query.rows()] == [*range(10), *range(15, 20)]


@pytest.mark.long
def test_a_topic_that_was_created_again_is_an_error_or_read_from_its_beginning(query: Query, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "log", 1, 2))
    assert query.run() == [10]
    asyncio.run(_delete(tmp_path / "log"))
    asyncio.run(fill(tmp_path / "log", 1, 3))
    with pytest.raises(Exception, match="topic orders was deleted and created again"):
        query.run()
    assert query.run(failOnDataLoss="false") == [15]
    assert [offset for _, offset, _ in query.rows()] == sorted([*range(10), *range(15)])


def test_a_spark_without_limits_is_told_so(monkeypatch: pytest.MonkeyPatch, can_spark: None) -> None:
    """As Spark 4.1 is."""
    import sys

    from catena.source.spark.readers import StreamReader, open_stream_reader

    assert type(open_stream_reader(parse_stream({"subscribe": "a"}), ["offset"])) is not StreamReader
    monkeypatch.delitem(sys.modules, "catena.source.spark.admission")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    assert type(open_stream_reader(parse_stream({"subscribe": "a"}), ["offset"])) is StreamReader
    with pytest.raises(ConfigError, match=r"maxOffsetsPerTrigger needs Spark 4\.2 or newer"):
        open_stream_reader(parse_stream({"subscribe": "a", "maxOffsetsPerTrigger": "5"}), ["offset"])


def test_without_limits_a_batch_goes_as_far_as_the_logs(tmp_path: Path, can_spark: None) -> None:
    from catena.source.spark.readers import StreamReader

    asyncio.run(fill(tmp_path, 1, 2))
    reader = StreamReader(parse_stream({"data": str(tmp_path), "subscribe": "orders"}), ["offset"])
    try:
        start = reader.initialOffset()
        assert reader.latestOffset() == start
        asyncio.run(fill(tmp_path, 1, 1, 10))
        end = reader.latestOffset()
        (split,) = reader.partitions(start, end)
        batches = reader.read(split)
        assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [10, 11, 12, 13, 14]
        assert reader.partitions(end, end) == []
    finally:
        reader.stop()
