"""Compaction by key: MB/s and memory at growing sizes, on a warm Spark, as in the service.

A partition has records of 100 bytes, of which each key has ten on average, anywhere in the log. It is tiered before the
clock starts; compaction is a whole pass: planning, three stages of tasks, the commit. Bytes are those of the segments
that it looks at, which it reads twice. Memory is the peak of the largest worker: it must not grow with the log.

BENCH_MILLIONS says how many records (1,10; the full figures are those of 1,10,50).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from bench.pipeline_job import Cost, run_job, twin_of
from bench.pipeline_processes import ROLES
from bench.pipeline_stand import GB, TOPIC, require_spark, settings_of
from bench.stand import open_node
from catena.formats.record_batch import parse_header
from catena.loglets.base import Entry

MILLION = 1_000_000
OVERWRITTEN = 10
VALUE_BYTES = 80
ROWS = 100_000
BATCH_BYTES = 250_000
APPENDS_AT_ONCE = 32
WARM_UP_RECORDS = 200_000


def run(folder: Path) -> list[Figure]:
    require_spark()
    warm_up = keyed_log(folder / "warm-up", WARM_UP_RECORDS)
    tiered_warm_up = twin_of(warm_up, folder / "tiered-warm-up")
    run_job("tier", tiered_warm_up, warm_up)
    figures: list[Figure] = []
    for millions in os.environ.get("BENCH_MILLIONS", "1,10").split(","):
        records = int(float(millions) * MILLION)
        log = keyed_log(folder / f"log-{millions}", records)
        run_job("tier", log, warm_up)
        cost = run_job("compact", twin_of(log, folder / f"tiered-{millions}"), tiered_warm_up)
        figures += figures_of(f"{millions} M records", records, cost)
    return figures


def figures_of(name: str, records: int, cost: Cost) -> list[Figure]:
    return [
        Figure(f"{name}: bytes", cost.bytes / 1e6, "MB"),
        Figure(f"{name}: compacted", cost.mb_per_s, "MB/s"),
        Figure(f"{name}: records", records / cost.seconds / 1e6, "M/s"),
        Figure(f"{name}: CPU per GB", cost.cpu_per_gb, "s"),
        *(Figure(f"{name}: peak memory, {role}", cost.peak_bytes[role] / 1e6, "MB") for role in ROLES),
        Figure(f"{name}: read / bytes", cost.usage.bytes_read / cost.bytes),
        Figure(f"{name}: scratch and segments written / bytes", cost.usage.bytes_written / cost.bytes),
        Figure(f"{name}: requests per GB", sum(cost.usage.requests.values()) / cost.bytes * GB),
    ]


def keyed_log(folder: Path, records: int) -> Path:
    folder.mkdir()
    asyncio.run(fill(folder, records))
    return folder


async def fill(folder: Path, records: int) -> None:
    async with open_node(settings_of(folder)) as node:
        await node.topics.create(TOPIC, 1, configs={"cleanup.policy": "compact"})
        log = await node.log(TOPIC, 0)
        waiting: list[asyncio.Task[int]] = []
        for batch in batches(records):
            waiting.append(asyncio.ensure_future(log.append(Entry(parse_header(batch), batch))))
            if len(waiting) == APPENDS_AT_ONCE:
                await asyncio.gather(*waiting)
                waiting = []
        await asyncio.gather(*waiting)


def batches(records: int) -> Iterator[bytes]:
    import numpy as np  # these come with Spark, and whoever runs another benchmark need not have them
    import pyarrow as pa

    from catena.columns.encode import encode

    draw = np.random.default_rng(7)
    for first in range(0, records, ROWS):
        count = min(ROWS, records - first)
        keys = pa.array(draw.integers(0, max(1, records // OVERWRITTEN), count)).cast(pa.string())
        values = pa.array(np.frombuffer(draw.bytes(count * VALUE_BYTES), f"S{VALUE_BYTES}"), pa.binary(VALUE_BYTES))
        yield from encode(
            pa.table({"key": keys, "value": values.cast(pa.binary())}), max_batch_bytes=BATCH_BYTES, time_ms=1
        )
