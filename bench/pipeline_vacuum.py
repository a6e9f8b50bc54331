"""Vacuum over 200,000 objects, most of them orphans and old enough: listing, references, and all of it with deletes.

Orphans are small files with the names of WAL blobs, dated two days back; one in a hundred is a real blob with a run
that the index refers to. Deletes are not limited here; the default limit is 3,000 a second. Spark is warm: it has
looked at all of it once before, in a dry run. Beside it `find` that lists the same files with their
sizes, and `rm -r` of as many. BENCH_OBJECTS says how many (200,000).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import Figure
from bench.kafka_clients import setting
from bench.pipeline_processes import cpu_by_role
from bench.pipeline_stand import ALL_OBJECTS_PER_S, TOPIC, require_spark
from bench.stand import entry_of, open_node
from catena.config import Settings
from catena.jobs import OpenWork, on_spark, vacuum
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.writer import WriterSettings
from catena.meta import keys
from catena.pipeline.settings import PipelineSettings, VacuumSettings
from catena.pipeline.vacuum import VacuumReport
from catena.pipeline.work import Work

OLD_S = 2 * 86_400
REFERENCED = 100
"""One of so many objects."""
PARTITIONS = 10
ORPHAN = b"x" * 100


def run(folder: Path) -> list[Figure]:
    require_spark()
    objects = int(setting("BENCH_OBJECTS", 200_000))
    referenced = objects // REFERENCED
    settings = Settings(
        data=str(folder / "data"),
        diskless=DisklessSettings(writer=WriterSettings(batch_max_bytes=1)),
        pipeline=PipelineSettings(vacuum=VacuumSettings(objects_per_s=ALL_OBJECTS_PER_S)),
    )
    asyncio.run(write_blobs(settings, referenced))
    blobs = folder / "data" / "objects" / keys.WAL_BLOBS
    found = asyncio.run(measure(settings, blobs, objects - referenced))
    assert len(os.listdir(blobs)) == referenced, "what is referred to is still there, and nothing else"
    return [*found, *beside(folder, objects)]


async def write_blobs(settings: Settings, count: int) -> None:
    """As many blobs, each of one run."""
    entry = entry_of([b"x" * 100])
    async with open_node(settings) as node:
        await node.topics.create(TOPIC, PARTITIONS)
        logs = [await node.log(TOPIC, number) for number in range(PARTITIONS)]
        for _ in range(count // PARTITIONS):
            await asyncio.gather(*(log.append(entry) for log in logs))
    assert len(os.listdir(Path(settings.data) / "objects" / keys.WAL_BLOBS)) == count


def write_orphans(folder: Path, count: int) -> None:
    for _ in range(count):
        (folder / os.urandom(16).hex()).write_bytes(ORPHAN)
    then = time.time() - OLD_S
    for name in os.listdir(folder):
        os.utime(folder / name, (then, then))


async def measure(settings: Settings, blobs: Path, orphans: int) -> list[Figure]:
    write_orphans(blobs, orphans)
    os.sync()
    async with on_spark(settings)() as work:

        @asynccontextmanager
        async def open_work() -> AsyncIterator[Work]:
            yield work

        await vacuum(settings, dry_run=True, open_work=open_work)
        looked_s, _, looked = await timed_vacuum(settings, open_work, dry_run=True)
        seconds, cpu_s, report = await timed_vacuum(settings, open_work, dry_run=False)
    assert (looked.orphans["wal"].objects, report.deleted.objects) == (orphans, orphans), report
    return [
        Figure("objects listed and held against references", looked.listed / looked_s, "1/s"),
        Figure("objects vacuumed: listed, looked for, deleted", report.listed / seconds, "1/s"),
        Figure("objects deleted", orphans / max(seconds - looked_s, 1e-9), "1/s"),
        Figure("all of it", seconds, "s"),
        Figure("CPU of 100,000 objects", cpu_s / report.listed * 100_000, "s"),
    ]


async def timed_vacuum(settings: Settings, open_work: OpenWork, dry_run: bool) -> tuple[float, float, VacuumReport]:
    before, started = sum(cpu_by_role(os.getpid()).values()), time.perf_counter()
    report = await vacuum(settings, dry_run=dry_run, open_work=open_work)
    seconds = time.perf_counter() - started
    return seconds, sum(cpu_by_role(os.getpid()).values()) - before, report


def beside(folder: Path, objects: int) -> list[Figure]:
    """What the file system does with as many files."""
    (folder / "files").mkdir()
    write_orphans(folder / "files", objects)
    os.sync()
    rates = []
    for command in (["find", str(folder / "files"), "-printf", "%f %s\n"], ["rm", "-r", str(folder / "files")]):
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        rates.append(objects / (time.perf_counter() - started))
    return [Figure("find lists", rates[0], "1/s"), Figure("rm removes", rates[1], "1/s")]
