"""An audit of everything, beside `cat OBJECT... > /dev/null` of the same objects: once in WAL blobs, once in segments.

`cat` reads every byte and looks at none; the audit checks each by two CRCs, and all that tells of them against each
other. Both take turns, and find the objects in the page cache; then both again with all of them dropped from it (see
`kafka_cold`). Medians are compared. The audit runs on a warm Spark. It is that of the topic, which holds all objects;
one of everything also counts orphans, and is told apart.

BENCH_GB says how much (1), BENCH_ROUNDS how often (3).
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure
from bench.kafka_clients import setting, timed
from bench.kafka_cold import drop
from bench.pipeline_job import run_job, twin_of, warm_up_log
from bench.pipeline_processes import ROLES
from bench.pipeline_stand import GB, blob_files, fill, require_spark, rounds, segment_files, size_of


def run(folder: Path) -> list[Figure]:
    require_spark()
    warm_up = warm_up_log(folder / "warm-up")
    log = folder / "log"
    asyncio.run(fill(log, int(setting("BENCH_GB", 1) * GB)))
    tiered = twin_of(log, folder / "tiered")
    run_job("tier", tiered, warm_up)
    return [
        *compare("WAL blobs", folder, log, blob_files(log), warm_up),
        *compare("segments", folder, tiered, segment_files(tiered), warm_up),
        Figure("WAL blobs, with orphans counted", run_job("audit-all", log, warm_up).seconds, "s"),
    ]


def compare(name: str, folder: Path, log: Path, objects: Sequence[Path], warm_up: Path) -> list[Figure]:
    figures = []
    for is_cold in (False, True):
        cats, audits, cpu, memory = [], [], [], []
        for place in rounds(int(setting("BENCH_ROUNDS", 3)), folder):
            prepare(objects, is_cold)
            cats.append(size_of(objects) / timed(["cat", *map(str, objects)]) / 1e6)
            job = twin_of(log, place / "log")
            prepare(objects, is_cold)
            cost = run_job("audit", job, warm_up)
            audits.append(size_of(objects) / cost.seconds / 1e6)
            cpu.append(cost.cpu_s)
            memory.append(cost.peak_bytes["workers"] / 1e6)
        where = f"{name}, {'from the disk' if is_cold else 'from memory'}"
        cat, audit = statistics.median(cats), statistics.median(audits)
        figures += [
            Figure(f"{where}: cat", cat, "MB/s"),
            Figure(f"{where}: audit", audit, "MB/s"),
            Figure(f"{where}: audit takes", size_of(objects) / audit / 1e6, "s"),
            Figure(f"{where}: audit / cat", audit / cat),
        ]
        if not is_cold:
            per_gb = [sum(each[role] for role in ROLES) / size_of(objects) * GB for each in cpu]
            figures += [
                Figure(f"{name}: CPU per GB", statistics.median(per_gb), "s"),
                Figure(f"{name}: peak memory of a worker", statistics.median(memory), "MB"),
            ]
    return figures


def prepare(objects: Sequence[Path], is_cold: bool) -> None:
    if is_cold:
        drop(objects)
    else:
        timed(["cat", *map(str, objects)])
