"""One partition of 100, read from start to end by a node that has nothing cached: before tiering, and after it.

Each read is by a new node, of objects that the kernel has dropped from its own cache (see `kafka_cold`), 1 MiB at a
time as consumers ask; some partitions take turns. Then the same where each request takes 20 ms, as it does at S3.
Catena's clock is an hour ahead, so that nothing passes for new. The bytes read include indexes and manifests.

BENCH_GB says how much all partitions hold (1), BENCH_COLD_PARTITIONS how many of them are read (5).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.figures import Figure, cpu_seconds
from bench.kafka_clients import setting
from bench.kafka_cold import drop
from bench.pipeline_job import run_job, warm_up_log
from bench.pipeline_stand import GB, PARTITIONS, TOPIC, blob_files, fill, require_spark, segment_files, settings_of
from catena.config import Settings
from catena.node import Node
from catena.objects.base import Blob, ObjectStore, Range
from catena.pipeline.work import used
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_stores
from catena.types import Buffer

READ_BYTES = 1 << 20
FAR_S = 0.02
HOUR_MS = 3_600_000


class Later(SystemClock):
    def now_ms(self) -> int:
        return super().now_ms() + HOUR_MS


class Far:
    """Forwards to a store, and each read takes a while."""

    def __init__(self, objects: ObjectStore, delay_s: float) -> None:
        self._objects = objects
        self._delay_s = delay_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    async def get(self, key: str) -> Blob:
        await asyncio.sleep(self._delay_s)
        return await self._objects.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        await asyncio.sleep(self._delay_s)
        return await self._objects.get_ranges(key, ranges)


class Read(NamedTuple):
    """Bytes that were delivered, what that took, and what the store was asked."""

    size: int
    seconds: float
    cpu_s: float
    bytes_read: int
    gets: int

    def __add__(self, other: tuple[Any, ...]) -> Read:
        return Read(*(mine + its for mine, its in zip(self, other, strict=True)))


def run(folder: Path) -> list[Figure]:
    require_spark()
    log = folder / "log"
    asyncio.run(fill(log, int(setting("BENCH_GB", 1) * GB)))
    count = min(PARTITIONS, int(setting("BENCH_COLD_PARTITIONS", 5)))
    partitions = range(0, PARTITIONS, PARTITIONS // count)
    before = read_all(log, blob_files(log), partitions)
    run_job("tier", log, warm_up_log(folder / "warm-up"))
    after = read_all(log, segment_files(log), partitions)
    return [*figures("before tiering", *before), *figures("after tiering", *after)]


def read_all(log: Path, objects: Sequence[Path], partitions: Sequence[int]) -> tuple[Read, Read]:
    """From near and from far."""
    near = far = Read(0, 0.0, 0.0, 0, 0)
    for partition in partitions:
        drop(objects)
        near += asyncio.run(read_partition(settings_of(log), partition, None))
        far += asyncio.run(read_partition(settings_of(log), partition, FAR_S))
    return near, far


async def read_partition(settings: Settings, partition: int, delay_s: float | None) -> Read:
    clock, entropy = Later(), SystemEntropy()
    async with open_stores(settings, clock, entropy) as (meta, objects, requests, _):
        store: Any = objects if delay_s is None else Far(objects, delay_s)
        node = await Node.start(settings, meta, store, clock, entropy)
        try:
            log = await node.log(TOPIC, partition)
            before = requests.snapshot()
            cpu, started = cpu_seconds(), time.perf_counter()
            offset = size = 0
            while batches := await log.read(offset, READ_BYTES):
                offset = batches[-1].end
                size += sum(len(batch.data) for batch in batches)
            seconds, cpu_s = time.perf_counter() - started, cpu_seconds() - cpu
            asked = used(before, requests.snapshot())
        finally:
            await node.close()
    gets = asked.requests.get("range_get", 0) + asked.requests.get("get", 0)
    return Read(size, seconds, cpu_s, asked.bytes_read, gets)


def figures(name: str, near: Read, far: Read) -> list[Figure]:
    return [
        Figure(f"{name}: gets per GB", near.gets / near.size * GB),
        Figure(f"{name}: bytes read per byte delivered", near.bytes_read / near.size),
        Figure(f"{name}: read", near.size / near.seconds / 1e6, "MB/s"),
        Figure(f"{name}: CPU per GB", near.cpu_s / near.size * GB, "s"),
        Figure(f"{name}: read, {FAR_S * 1000:g} ms a request", far.size / far.seconds / 1e6, "MB/s"),
    ]
