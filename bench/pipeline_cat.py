"""What tiering is compared with: a process that copies byte ranges of blobs into one file for each partition.

python -m bench.pipeline_cat RANGES FOLDER

It does what `cat` does, read and write, one range after the other in the order of partitions and offsets, and knows
nothing of what it copies. `cat` itself can't be told ranges, and one `dd` for each of 25,000 of them would measure how
fast processes start. Each file is made durable as the object store makes its own: fdatasync, then fsync of the folder.
The clock starts when the process is up, has read which ranges to copy, and free memory is there (`fetch_memory`).
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.figures import cpu_seconds
from bench.kafka_clients import Client, run_clients, wait_for_go
from bench.pipeline_processes import fetch_memory
from bench.pipeline_stand import GB, Extent, extents


class CatCost(msgspec.Struct, frozen=True):
    seconds: float
    bytes: int
    cpu_s: float

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def cpu_per_gb(self) -> float:
        return self.cpu_s / self.bytes * GB


def write_ranges(log: Path, file: Path) -> Path:
    """The ranges of all partitions of a log, as `run_cat` wants them."""
    file.write_bytes(msgspec.json.encode(asyncio.run(extents(log))))
    return file


def run_cat(ranges: Path, folder: Path) -> CatCost:
    _, (found,) = run_clients([Client("pipeline_cat", ranges, folder)])
    return msgspec.json.decode(found, type=CatCost)


def copy(partitions: Sequence[Sequence[Extent]], folder: Path) -> int:
    """Bytes that were copied."""
    blobs = {path: os.open(path, os.O_RDONLY) for path in {each.path for its in partitions for each in its}}
    buffer = memoryview(bytearray(max((each.length for its in partitions for each in its), default=0)))
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    total = 0
    for number, its in enumerate(partitions):
        file = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        for path, start, length in its:
            part = buffer[:length]
            if os.preadv(blobs[path], [part], start) != length or os.write(file, part) != length:
                raise OSError(f"{path}: {length} bytes from {start} on were not copied as a whole")
            total += length
        os.fdatasync(file)
        os.fsync(opened)
        os.close(file)
    return total


def measure(ranges: Path, folder: Path) -> CatCost:
    partitions = msgspec.json.decode(ranges.read_bytes(), type=list[list[Extent]])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    fetch_memory(2 * sum(each.length for its in partitions for each in its))
    wait_for_go()
    cpu, started = cpu_seconds(), time.perf_counter()
    total = copy(partitions, folder)
    return CatCost(time.perf_counter() - started, total, cpu_seconds() - cpu)


if __name__ == "__main__":
    print(msgspec.json.encode(measure(Path(sys.argv[1]), Path(sys.argv[2]))).decode())
