"""Tiering ten times as much: it takes ten times as long, and no more memory.

BENCH_GB says how much is the least (1), BENCH_GROWTH_GB the most (4). Both are in 100 partitions and 4 MiB blobs, so
there are more blobs and longer partitions. Memory is the peak of the driver, of its JVM, and of the largest worker.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from bench.figures import Figure, at_most
from bench.kafka_clients import setting
from bench.pipeline_job import Cost, run_job, warm_up_log
from bench.pipeline_processes import ROLES
from bench.pipeline_stand import GB, fill, require_spark

AIM = 1.2


def run(folder: Path) -> list[Figure]:
    require_spark()
    warm_up = warm_up_log(folder / "warm-up")
    least, most = setting("BENCH_GB", 1), setting("BENCH_GROWTH_GB", 4)
    small, large = (tier(folder / "log", warm_up, size_gb) for size_gb in (least, most))
    times, sizes = large.seconds / small.seconds, large.bytes / small.bytes
    return [
        Figure(f"{least:g} GB", small.seconds, "s"),
        Figure(f"{most:g} GB", large.seconds, "s"),
        at_most("seconds / size", times / sizes, AIM),
        at_most("CPU / size", large.cpu_per_gb / small.cpu_per_gb, AIM),
        *(
            figure
            for role in ROLES
            for figure in (
                Figure(f"peak memory: {role}, {most:g} GB", large.peak_bytes[role] / 1e6, "MB"),
                at_most(f"peak memory: {role}, growth", large.peak_bytes[role] / small.peak_bytes[role], AIM),
            )
        ),
    ]


def tier(log: Path, warm_up: Path, size_gb: float) -> Cost:
    asyncio.run(fill(log, int(size_gb * GB)))
    try:
        return run_job("tier", log, warm_up)
    finally:
        for each in log.parent.glob(f"{log.name}*"):
            shutil.rmtree(each)
