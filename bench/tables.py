"""Tables of topics, on a warm Spark on 2 cores: how fast they are written, how fresh they are, how large.

**Writing.** A topic's records, 100 B each and 1 KB each, become a table; beside it Spark reads the same topic by the
format `catena` and writes the same rows to Parquet with zstd. Both read the log, and both take turns; the best counts.

**Freshness.** A process appends 5,000 records of 100 B a second, open loop. Beside it the job of the service keeps the
table, again and again, as often as the topic's config asks for (`table.commit.interval.ms`, a second). A record's age
is taken when the commit that holds it returns; each carries the time at which it was due.

BENCH_TABLE_MB says how many a topic has (200), BENCH_FRESH_S how long records come (60), BENCH_ROUNDS how often (3).
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.figures import Figure
from bench.kafka_clients import setting
from bench.pipeline_stand import require_spark
from bench.serving import Missing
from bench.source_scan import JVM_AS_IT_COMES, fill_topic, topic_of
from bench.stand import open_node
from catena.config import Settings
from catena.formats.compression import Compression
from catena.pipeline.spark.session import open_spark
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.work import Work
from catena.runtime import SystemClock, SystemEntropy
from catena.store_spec import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "fresh"
PARTITIONS = 4
RATE = 5_000
TICK_S = 0.02
RECORD_BYTES = 100
INTERVAL_MS = 1_000
MB = 1e6

PRODUCER = """
import asyncio, sys, time
from bench.tables import produce
asyncio.run(produce(sys.argv[1], float(sys.argv[2])))
"""


def run(folder: Path) -> list[Figure]:
    require_spark()
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise Missing("it needs deltalake: install the extra tables") from None
    figures: list[Figure] = []
    with open_spark("local[2,3]", options={"spark.driver.extraJavaOptions": JVM_AS_IT_COMES}) as spark:
        for size in (100, 1000):
            figures += asyncio.run(_writing(spark, folder / f"write-{size}", size))
        figures += asyncio.run(_freshness(spark, folder / "fresh"))
    return figures


async def _writing(spark: SparkSession, folder: Path, size: int) -> list[Figure]:
    from catena import jobs

    data, topic = folder / "data", topic_of(size, Compression.NONE)
    settings = Settings(data=str(data))
    ours: list[float] = []
    theirs: list[float] = []
    rows = stored = 0
    for number in range(int(setting("BENCH_ROUNDS", 3))):
        async with open_node(settings) as node:
            if number:
                await node.topics.delete(topic)
            rows = await fill_topic(node, size, Compression.NONE, setting("BENCH_TABLE_MB", 200), distinct=None)
            await node.topics.alter_configs(topic, {"table.enable": "true"})
        started = time.perf_counter()
        report = await jobs.tables(settings, open_work=lambda: _work(spark, settings))
        ours.append(time.perf_counter() - started)
        (table,) = report.tables
        assert (table.rows, table.error) == (rows, ""), table
        stored = table.bytes
        started = time.perf_counter()
        out = folder / f"parquet-{number}"
        frame = spark.read.format("catena").options(data=str(data), subscribe=topic, includeHeaders="true").load()
        frame.write.option("compression", "zstd").parquet(str(out))
        theirs.append(time.perf_counter() - started)
        shutil.rmtree(out)
    name, produced = f"{size} B", rows * (size + 8)
    return [
        Figure(f"{name}: written", produced / min(ours) / MB, "MB/s"),
        Figure(f"{name}: written, rows", rows / min(ours) / 1e6, "Mrow/s"),
        Figure(f"{name}: beside Spark writing the same rows to Parquet", min(theirs) / min(ours)),
        Figure(f"{name}: bytes stored for a byte produced", stored / produced),
    ]


@asynccontextmanager
async def _work(spark: SparkSession, settings: Settings) -> AsyncIterator[Work]:
    from catena.tables.tasks import run_task

    work = SparkWork(spark, StoreSpec.of(settings), SystemEntropy(), run=run_task)
    try:
        yield work
    finally:
        work.close()


class Commit(NamedTuple):
    at_ms: int
    progress: dict[int, int]


async def _freshness(spark: SparkSession, folder: Path) -> list[Figure]:
    from catena.jobs.opening import EVERYTHING, open_site
    from catena.jobs.tabling import build_tables, find_tables, open_driver

    settings = Settings(data=str(folder))
    configs = {"table.enable": "true", "table.commit.interval.ms": str(INTERVAL_MS)}
    async with open_node(settings) as node:
        await node.topics.create(TOPIC, PARTITIONS)
        await node.topics.alter_configs(TOPIC, configs)
    clock, entropy = SystemClock(), SystemEntropy()
    seconds = setting("BENCH_FRESH_S", 60)
    commits: list[Commit] = []
    async with AsyncExitStack() as opened:
        work = await opened.enter_async_context(_work(spark, settings))
        site, _ = await opened.enter_async_context(open_site(settings, clock, entropy))
        driver = await opened.enter_async_context(open_driver(settings, site, work))
        tables = await find_tables(site, EVERYTHING)
        table = (await driver.opener.open(tables[0].topic, "delta")).table
        producer = subprocess.Popen([sys.executable, "-c", PRODUCER, str(folder), str(seconds)])  # noqa: ASYNC220
        ends = time.monotonic() + seconds + 5
        while time.monotonic() < ends or producer.poll() is None:
            (report,) = await build_tables(driver, tables, only_if_due=True)
            assert not report.error, report
            state = await table.load()
            if report.commits and state is not None:
                commits.append(Commit(clock.now_ms(), dict(state.guards.progress)))
            await clock.sleep(0.05)
        assert producer.returncode == 0
        uri = table.uri
    ages = _ages(uri, commits)
    return [
        Figure(f"freshness at {RATE:,} records/s, p50", ages[len(ages) // 2] / 1000, "s"),
        Figure("the same, p99", ages[len(ages) * 99 // 100] / 1000, "s"),
        Figure("the same, commits", len(commits)),
        Figure("the same, records", len(ages)),
    ]


def _ages(uri: str, commits: Sequence[Commit]) -> list[int]:
    """Of all records, in milliseconds and in order."""
    from deltalake import DeltaTable

    rows = DeltaTable(uri).to_pyarrow_table(columns=["_catena"])["_catena"].combine_chunks()
    ages = []
    for partition, offset, at in zip(
        rows.field("partition").to_pylist(),
        rows.field("offset").to_pylist(),
        rows.field("timestamp").cast("int64").to_pylist(),
        strict=True,
    ):
        seen = next(commit.at_ms for commit in commits if commit.progress.get(partition, 0) > offset)
        ages.append(seen - at // 1000)
    return sorted(ages)


async def produce(folder: str, seconds: float) -> None:
    """Open loop: what is late is sent at once, with the time at which it was due."""
    import catena

    value = b"x" * RECORD_BYTES
    per_tick = int(RATE * TICK_S)
    async with catena.open(folder) as log:
        started, started_ms = time.monotonic(), int(time.time() * 1000)
        pending: list[asyncio.Task[object]] = []
        for tick in range(int(seconds / TICK_S)):
            due = tick * TICK_S
            await asyncio.sleep(max(0.0, started + due - time.monotonic()))
            messages = [catena.Message(value, timestamp_ms=started_ms + int(due * 1000)) for _ in range(per_tick)]
            append = log.append_batch(TOPIC, messages, partition=tick % PARTITIONS)
            pending.append(asyncio.ensure_future(append))
            if tick % 100 == 99:
                await asyncio.gather(*pending[:-20])
                pending = pending[-20:]
        await asyncio.gather(*pending)
