"""Tiering, beside a process that copies the same byte ranges into one file for each partition: see `pipeline_cat`.

Both take turns, each several times, on copies of one log; medians are compared. Both find the blobs in the page cache
and memory that is free (`fetch_memory`), and both make what they write durable. Tiering runs on a warm Spark, as in the
service, and is a whole pass: planning, tasks, commits. CPU is that of all its processes: driver, JVM, Python workers.
What it does beyond copying: each byte is checked twice, by its batch's CRC and for the index, and the commits.

BENCH_GB says how much (1), BENCH_ROUNDS how often (3).
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from bench.figures import Figure, at_least
from bench.kafka_clients import setting
from bench.pipeline_cat import run_cat, write_ranges
from bench.pipeline_job import run_job, twin_of, warm_up_log
from bench.pipeline_processes import ROLES
from bench.pipeline_stand import GB, blob_files, fill, require_spark, rounds, size_of

T = TypeVar("T")

AIM = 0.5


def run(folder: Path) -> list[Figure]:
    require_spark()
    log = folder / "log"
    asyncio.run(fill(log, int(setting("BENCH_GB", 1) * GB)))
    ranges = write_ranges(log, folder / "ranges")
    warm_up = warm_up_log(folder / "warm-up")
    blobs = blob_files(log)
    plain, cats, tiers = [], [], []
    for place in rounds(int(setting("BENCH_ROUNDS", 3)), folder):
        (place / "files").mkdir()
        cats.append(run_cat(ranges, place / "files"))
        tiers.append(run_job("tier", twin_of(log, place / "log"), warm_up))
        plain.append(cat_to_file(blobs, place / "file"))
    cat, tier = median(cats, lambda each: each.mb_per_s), median(tiers, lambda each: each.mb_per_s)
    cat_cpu, tier_cpu = median(cats, lambda each: each.cpu_per_gb), median(tiers, lambda each: each.cpu_per_gb)
    return [
        Figure("cat of all blobs into one file", statistics.median(plain), "MB/s"),
        Figure("cat of the ranges", cat, "MB/s"),
        Figure("tier", tier, "MB/s"),
        at_least("tier / cat", tier / cat, AIM),
        Figure("CPU per GB: cat of the ranges", cat_cpu, "s"),
        Figure("CPU per GB: tier", tier_cpu, "s"),
        *(
            Figure(f"of it {role}", statistics.median(each.cpu_s[role] / each.bytes * GB for each in tiers), "s")
            for role in ROLES
        ),
        at_least("CPU per GB: cat / tier", cat_cpu / tier_cpu, AIM),
        *(
            Figure(f"peak memory: {role}", statistics.median(each.peak_bytes[role] for each in tiers) / 1e6, "MB")
            for role in ROLES
        ),
        Figure("range gets per GB", median(tiers, lambda each: each.usage.requests["range_get"] / each.bytes * GB)),
        Figure("start of Spark and its workers", median(tiers, lambda each: each.start_s), "s"),
    ]


def median(rounds: Sequence[T], value: Callable[[T], float]) -> float:
    return statistics.median(map(value, rounds))


def cat_to_file(blobs: Sequence[Path], file: Path) -> float:
    """MB/s of the real one, durable as well: how fast this machine copies at all."""
    started = time.perf_counter()
    with file.open("wb") as out:
        subprocess.run(["cat", *map(str, blobs)], stdout=out, check=True)
    subprocess.run(["sync", "--data", str(file)], check=True)
    return size_of(blobs) / (time.perf_counter() - started) / 1e6
