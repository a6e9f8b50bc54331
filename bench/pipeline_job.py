"""A job of the pipeline on Spark, in processes of its own: how long it takes, its CPU and its memory.

python -m bench.pipeline_job tier|compact|audit|audit-all FOLDER WARM_UP_FOLDER

The session is warm, as the service's is: before the clock starts the same job has been done to a small log, in
WARM_UP_FOLDER, and the memory that will be needed has been fetched (`fetch_memory`). What the start took is told apart.
Memory is the peak since the processes began.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.kafka_clients import Client, run_clients, wait_for_go
from bench.pipeline_processes import Role, cpu_by_role, fetch_memory, peak_by_role
from bench.pipeline_stand import BLOB_BYTES, GB, TOPIC, blob_files, fill, settings_of, size_of, twin
from catena.config import Settings
from catena.jobs import EVERYTHING, Which, audit, compact, tier
from catena.pipeline.spark.session import open_spark
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.work import Usage
from catena.runtime import SystemEntropy
from catena.store_spec import StoreSpec

WARM_UP_BYTES = 8 * BLOB_BYTES


class Cost(msgspec.Struct, frozen=True):
    start_s: float
    """Of Spark and its workers, with the warm-up."""
    seconds: float
    bytes: int
    """As the job has counted them."""
    cpu_s: dict[Role, float]
    peak_bytes: dict[Role, int]
    usage: Usage
    """What its tasks asked of the object store."""

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def cpu_per_gb(self) -> float:
        return sum(self.cpu_s.values()) / self.bytes * GB


def warm_up_log(folder: Path) -> Path:
    """A small log, to be handed to `run_job`."""
    asyncio.run(fill(folder, WARM_UP_BYTES))
    return folder


def run_job(job: str, folder: Path, warm_up: Path) -> Cost:
    """The log in `folder` is changed by it, the one in `warm_up` is not."""
    copy = folder.with_name(f"{folder.name}-warm-up")
    _, (found,) = run_clients([Client("pipeline_job", job, folder, twin_of(warm_up, copy))])
    return msgspec.json.decode(found, type=Cost)


def twin_of(folder: Path, to: Path) -> Path:
    to.mkdir()
    return twin(folder, to)


async def measure(job: str, folder: Path, warm_up: Path) -> Cost:
    started = time.perf_counter()
    with open_spark() as session:
        async with work_on(session, warm_up) as work:
            # In tasks so small that each worker has some.
            await do(job, settings_of(warm_up, BLOB_BYTES), work)
        start_s = time.perf_counter() - started
        async with work_on(session, folder) as work:
            fetch_memory(2 * size_of(blob_files(folder)))
            wait_for_go()
            before, started = cpu_by_role(os.getpid()), time.perf_counter()
            size = await do(job, settings_of(folder), work)
            seconds = time.perf_counter() - started
            after, peak = cpu_by_role(os.getpid()), peak_by_role(os.getpid())
            usage = sum(work.usage.values(), Usage())
    return Cost(start_s, seconds, size, {role: after[role] - before[role] for role in after}, peak, usage)


@asynccontextmanager
async def work_on(session: object, folder: Path) -> AsyncIterator[SparkWork]:
    work = SparkWork(session, StoreSpec.of(settings_of(folder)), SystemEntropy())
    try:
        yield work
    finally:
        work.close()


async def do(job: str, settings: Settings, work: SparkWork) -> int:
    """How many bytes it was about."""

    @asynccontextmanager
    async def open_work() -> AsyncIterator[SparkWork]:
        yield work

    match job:
        case "tier":
            tiered = await tier(settings, open_work=open_work)
            assert not tiered.failed, tiered.partitions
            return sum(each.bytes for each in tiered.partitions)
        case "compact":
            compacted = await compact(settings, open_work=open_work)
            assert [each.outcome for each in compacted.partitions] == ["compacted"], compacted.partitions
            return sum(each.bytes_before for each in compacted.partitions)
        case "audit" | "audit-all":
            which = Which(TOPIC) if job == "audit" else EVERYTHING
            audited = await audit(settings, which, open_work)
            assert audited.ok, audited
            return audited.bytes
        case _:
            raise ValueError(f"there is no job {job}")


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))).decode())
