"""Scans of whole topics by Spark, on 2 cores: the format `catena`, beside Spark's own Kafka source through a node.

Each topic has records of one size and compression, half of each random, in 8 partitions and batches of 500 kB. All of
its columns are read, and thrown away by Spark (`noop`). Both sources take turns on the same topic; the best of some
rounds counts, with Spark warm and the objects in the page cache. MB are those of keys and values, uncompressed. The
JVM has the compiler and the collector that Spark gets where nobody says otherwise, and not those of our own jobs, which
bring no rows into it. In the same rounds Spark takes as many rows from a source that has them ready (`arrow_floor`):
no source in Python is faster than that.

BENCH_SCAN_MB says how many of them a topic has (400), BENCH_ROUNDS how often (3). The jars of Spark's source are
fetched by mvn, once; BENCH_SPARK_KAFKA_JARS names a folder that has them already.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.decoding import BATCH_BYTES, distinct_batches
from bench.figures import Figure, at_least
from bench.kafka_clients import setting
from bench.maven import Artifact, fetch_jars
from bench.pipeline_stand import require_spark
from bench.serving import Missing, catena_node
from bench.stand import open_node
from catena.config import Settings
from catena.formats.compression import Compression
from catena.formats.record_batch import parse_header
from catena.loglets.base import Entry
from catena.node import Node
from catena.pipeline.spark.session import open_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA_SOURCE = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", is_alone=True),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", is_alone=True),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1", is_alone=True),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1", is_alone=True),
)
"""The newest on Maven Central; it works in Spark 4.3."""
JVM_AS_IT_COMES = "-XX:-UseSerialGC -XX:+UseG1GC -XX:TieredStopAtLevel=4"
PARTITIONS = 8
IN_FLIGHT = 32
SIZES = (100, 1000)
MB = 1_000_000


def run(folder: Path) -> list[Figure]:
    require_spark()
    jars = fetch_jars(KAFKA_SOURCE, "BENCH_SPARK_KAFKA_JARS")
    data = folder / "node" / "data"
    rows = {
        (size, compression): asyncio.run(fill(data, size, compression, setting("BENCH_SCAN_MB", 400)))
        for size in SIZES
        for compression in Compression
    }
    options = {
        "spark.jars": ",".join(str(path) for path in sorted(jars.glob("*.jar"))),
        "spark.driver.extraJavaOptions": JVM_AS_IT_COMES,
    }
    figures: list[Figure] = []
    with catena_node(folder / "node") as node, open_spark("local[2,3]", options=options) as spark:
        from bench.arrow_floor import FORMAT, ArrowFloor

        spark.dataSource.register(ArrowFloor)
        for (size, compression), count in rows.items():
            floor = {"size": str(size), "rows": str(count // PARTITIONS), "partitions": str(PARTITIONS)}
            topic = topic_of(size, compression)
            kafka = {"kafka.bootstrap.servers": node.address, "startingOffsets": "earliest"}
            ours, theirs, ready = [], [], []
            for _ in range(int(setting("BENCH_ROUNDS", 3))):
                ours.append(scan(spark, count, "catena", subscribe=topic, data=str(data)))
                theirs.append(scan(spark, count, "kafka", subscribe=topic, **kafka))
                if compression is Compression.NONE:
                    ready.append(scan(spark, count // PARTITIONS * PARTITIONS, FORMAT, **floor))
            figures += figures_of(
                f"{size} B, {compression.name.lower()}", size, compression, count, min(ours), min(theirs)
            )
            if ready:
                figures += floor_figures(f"{size} B", count, min(ready), min(ours))
    return figures


def figures_of(
    name: str, size: int, compression: Compression, count: int, ours_s: float, theirs_s: float
) -> list[Figure]:
    rate, mb = count / ours_s / 1e6, count * (size + 8) / ours_s / MB
    plain = compression is Compression.NONE
    return [
        at_least(name, rate, 1.5, "Mrow/s") if plain and size == SIZES[0] else Figure(name, rate, "Mrow/s"),
        at_least(f"{name}, MB", mb, 400, "MB/s") if plain and size == SIZES[1] else Figure(f"{name}, MB", mb, "MB/s"),
        at_least(f"{name}, beside Spark's Kafka source", theirs_s / ours_s, 2),
    ]


def floor_figures(name: str, count: int, ready_s: float, ours_s: float) -> list[Figure]:
    return [
        Figure(f"{name}, rows that are ready: what a source in Python can reach", count / ready_s / 1e6, "Mrow/s"),
        Figure(f"{name}, none, as a share of it", ready_s / ours_s),
    ]


def topic_of(size: int, compression: Compression) -> str:
    return f"scan-{size}-{compression.name.lower()}"


async def fill(data: Path, size: int, compression: Compression, megabytes: float) -> int:
    """How many records."""
    async with open_node(Settings(data=str(data))) as node:
        return await fill_topic(node, size, compression, megabytes)


async def fill_topic(
    node: Node, size: int, compression: Compression, megabytes: float, distinct: int | None = 8
) -> int:
    """A new one. `distinct`: so many batches are made, and used again; None: all are new."""
    per_batch = BATCH_BYTES // size
    count = max(PARTITIONS, int(megabytes * MB / (per_batch * size)))
    made = distinct_batches(size, compression, count=distinct or count)
    batches = [Entry(parse_header(batch), batch) for batch in made]
    # The records have the same old times in every run, and a node that serves would let go of them.
    await node.topics.create(topic_of(size, compression), PARTITIONS, configs={"retention.ms": "-1"})
    logs = [await node.log(topic_of(size, compression), number) for number in range(PARTITIONS)]
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def append(number: int) -> None:
        async with slots:
            await logs[number % PARTITIONS].append(batches[number % len(batches)])

    await asyncio.gather(*map(append, range(count)))
    return count * per_batch


def scan(spark: SparkSession, count: int, source: str, **options: str) -> float:
    """Seconds."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    started = time.perf_counter()
    seen = Observation()
    frame = spark.read.format(source).options(**options).load()
    frame.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - started
    if seen.get["rows"] != count:
        raise Missing(f"{source}: {seen.get['rows']} rows were read, and {count} are there")
    return seconds
