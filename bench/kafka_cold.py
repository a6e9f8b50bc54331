"""A fetch of cold data: a new node that has nothing in its caches, of objects that the kernel has dropped from its own.

Beside it `cat` of the same objects, dropped as well. `posix_fadvise` drops what is written, and needs no rights; where
a file system ignores it both read from memory. The index in SQLite is not dropped. BENCH_GB says how much (1).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure, at_least
from bench.kafka_clients import flow, kcat_consume, kcat_produce, setting, timed, write_records
from bench.serving import catena_node

ROUNDS = 3


def run(folder: Path) -> list[Figure]:
    records = write_records(folder / "lines", int(setting("BENCH_GB", 1) * 1e9))
    with catena_node(folder) as node:
        kcat_produce(node.address, "bench", folder / "lines")
    objects = [path for path in (folder / "data" / "objects").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in objects)
    cats, fetches = [], []
    for _ in range(ROUNDS):
        drop(objects)
        cats.append(size / timed(["cat", *map(str, objects)]) / 1e6)
        drop(objects)
        with catena_node(folder) as node:
            fetches.append(flow([node], records, lambda: kcat_consume(node.address, "bench", 0, records)))
    cat = statistics.median(cats)
    fetch = statistics.median(each.mb_per_s for each in fetches)
    return [
        Figure("cat of the objects", cat, "MB/s"),
        Figure("fetch of cold data, by kcat", fetch, "MB/s"),
        at_least("fetch / cat", fetch / cat, 0.5),
        Figure("CPU of the broker per GB", statistics.median(each.cpu_per_gb for each in fetches), "s"),
    ]


def drop(files: Sequence[Path]) -> None:
    """From the page cache."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
