"""Logs for the benchmarks of the pipeline: 4 MiB blobs, each with a run of all 100 partitions, on the embedded default.

They are written by the product's own writer, one batch of 42 kB a run, with fsync. A log that a job is going to change
is copied before: objects are immutable, so a copy has hard links to the same files, and the same pages in the cache.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.serving import Missing
from bench.stand import entry_of, open_node
from catena.config import Settings
from catena.errors import ConfigError
from catena.loglets.base import Entry
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.writer import WriterSettings
from catena.meta import keys
from catena.pipeline.settings import AuditSettings, PipelineSettings, TierSettings, VacuumSettings
from catena.pipeline.spark.java import find_java
from catena.pipeline.spark.session import check_pyspark

TOPIC = "bench"
PARTITIONS = 100
BLOB_BYTES = 4 << 20
RECORDS = 41
RECORD_BYTES = 1016
BLOBS_IN_FLIGHT = 6
NOT_SOON_MS = 60_000
TASK_BYTES = TierSettings().task_bytes
ALL_OBJECTS_PER_S = 1_000_000_000
GB = 1e9


class Extent(NamedTuple):
    """Bytes of a file."""

    path: str
    start: int
    length: int


def require_spark() -> None:
    """Raises Missing if it can't be had here."""
    try:
        check_pyspark()
        find_java(os.environ)
    except ConfigError as error:
        raise Missing(str(error)) from error


def settings_of(folder: Path, task_bytes: int = TASK_BYTES) -> Settings:
    """Everything may be tiered at once, whatever its age and size, and deletes have no limit."""
    writer = WriterSettings(batch_max_bytes=BLOB_BYTES, batch_max_delay_ms=NOT_SOON_MS)
    return Settings(
        data=str(folder),
        diskless=DisklessSettings(writer=writer),
        pipeline=PipelineSettings(
            tier=TierSettings(min_age_ms=0, min_bytes=0, task_bytes=task_bytes),
            audit=AuditSettings(task_bytes=task_bytes),
            vacuum=VacuumSettings(objects_per_s=ALL_OBJECTS_PER_S),
        ),
    )


def batch() -> Entry:
    """As large as a run has to be, so that one of each partition fills a blob and no fewer do."""
    entry = entry_of([os.urandom(RECORD_BYTES) for _ in range(RECORDS)])
    assert (PARTITIONS - 1) * len(entry.data) < BLOB_BYTES <= PARTITIONS * len(entry.data)
    return entry


async def fill(folder: Path, size: int) -> None:
    """A log of about so many bytes; one blob at the least."""
    entry = batch()
    blobs = max(1, round(size / (PARTITIONS * len(entry.data))))
    async with open_node(settings_of(folder)) as node:
        await node.topics.create(TOPIC, PARTITIONS)
        logs = [await node.log(TOPIC, number) for number in range(PARTITIONS)]
        await asyncio.gather(*(log.chain() for log in logs))  # so that none of them is late for the first blob
        slots = asyncio.Semaphore(BLOBS_IN_FLIGHT)

        async def write_blob() -> None:
            async with slots:
                await asyncio.gather(*(log.append(entry) for log in logs))

        await asyncio.gather(*(write_blob() for _ in range(blobs)))
    found = len(blob_files(folder))
    assert found <= blobs + 1, f"{found} blobs, and {blobs} were to be filled"


def twin(folder: Path, to: Path) -> Path:
    """A copy of a log that nobody uses at the moment."""
    shutil.copytree(folder / "objects", to / "objects", copy_function=os.link)
    for path in folder.iterdir():
        if path.is_file():
            shutil.copy(path, to)
    return to


def blob_files(folder: Path) -> list[Path]:
    return sorted((folder / "objects" / keys.WAL_BLOBS).iterdir())


def segment_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"objects/{keys.ROOT}/*/partitions/*/segments/*/*"))


def size_of(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


async def extents(folder: Path) -> list[list[Extent]]:
    """Of each partition, the ranges that hold it."""
    from catena.jobs.opening import EVERYTHING, find_places, open_site
    from catena.runtime import SystemClock, SystemEntropy

    objects = folder / "objects"
    async with open_site(settings_of(folder), SystemClock(), SystemEntropy()) as (site, _):
        return [
            [
                Extent(str(objects / entry.data_key), entry.byte_offset, entry.byte_length or 0)
                async for entry in site.index_entries(place.tp, 0)
            ]
            for place in await find_places(site, EVERYTHING)
        ]


def rounds(count: int, folder: Path) -> Iterator[Path]:
    """A folder for each round, removed after it, and what was written is on the disk then."""
    for number in range(count):
        place = folder / f"round-{number}"
        place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place)
            os.sync()
