"""Append and read 1 KiB records in 1 MB batches through the virtual log, beside the same bytes as plain files.

The limit: three threads that write the bytes into 8 MiB files with fdatasync. Limit and log take turns, each several
times, after a warm-up of both, and the medians are compared: the first touch of a disk is far slower than the next.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.figures import Figure, at_least, at_most, cpu_seconds
from bench.stand import embedded_node, entry_of
from catena.loglets.base import Entry

RECORD_BYTES = 1024
RECORDS_PER_BATCH = 950
TOTAL_BYTES = 1 << 30
FILE_BYTES = 8 << 20
THREADS = 3
IN_FLIGHT = 32
ROUNDS = 3
GB = 1e9


def run(folder: Path) -> list[Figure]:
    batch = entry_of([os.urandom(RECORD_BYTES) for _ in range(RECORDS_PER_BATCH)])
    write_files(folder / "warm", batch, TOTAL_BYTES // 4)
    limits, appends, reads, append_cpu, read_cpu = [], [], [], [], []
    for number in range(ROUNDS):
        limits.append(write_files(folder / f"files-{number}", batch, TOTAL_BYTES))
        result = asyncio.run(through_the_log(folder / f"log-{number}", batch))
        appends.append(result[0])
        append_cpu.append(result[1])
        reads.append(result[2])
        read_cpu.append(result[3])
    limit, append, read = map(statistics.median, (limits, appends, reads))
    return [
        Figure("limit: three threads, 8 MiB files", limit / 1e6, "MB/s"),
        Figure("append", append / 1e6, "MB/s"),
        at_least("append / limit", append / limit, 0.7),
        at_most("CPU per GB appended", statistics.median(append_cpu), 2, "s"),
        Figure("read", read / 1e6, "MB/s"),
        Figure("CPU per GB read", statistics.median(read_cpu), "s"),
    ]


def write_files(folder: Path, batch: Entry, total: int) -> float:
    """Bytes a second of the plain writes."""
    folder.mkdir(parents=True)
    chunk = bytes(batch.data)
    per_file = FILE_BYTES // len(chunk)

    def write(number: int) -> None:
        with open(folder / str(number), "wb", buffering=0) as file:
            os.writev(file.fileno(), [chunk] * per_file)
            os.fdatasync(file.fileno())

    files = total // (per_file * len(chunk))
    started = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, range(files)))
    elapsed = time.perf_counter() - started
    shutil.rmtree(folder)
    return files * per_file * len(chunk) / elapsed


async def through_the_log(folder: Path, batch: Entry) -> tuple[float, float, float, float]:
    """Bytes a second and CPU seconds a GB, appending and then reading what was appended from the stores."""
    count = TOTAL_BYTES // len(batch.data)
    total = count * len(batch.data)
    async with embedded_node(folder) as node:
        await node.topics.create("bench")
        log = await node.log("bench", 0)
        slots = asyncio.Semaphore(IN_FLIGHT)

        async def append() -> None:
            async with slots:
                await log.append(batch)

        cpu, started = cpu_seconds(), time.perf_counter()
        await asyncio.gather(*(append() for _ in range(count)))
        append_s, append_cpu = time.perf_counter() - started, cpu_seconds() - cpu
    async with embedded_node(folder) as node:  # a new node: nothing is cached in it
        log = await node.log("bench", 0)
        cpu, started = cpu_seconds(), time.perf_counter()
        offset = size = 0
        while batches := await log.read(offset, 8 << 20):
            offset = batches[-1].end
            size += sum(len(batch.data) for batch in batches)
        read_s, read_cpu = time.perf_counter() - started, cpu_seconds() - cpu
    assert size == total, f"read {size} of {total} bytes"
    shutil.rmtree(folder)
    return total / append_s, append_cpu / total * GB, total / read_s, read_cpu / total * GB
