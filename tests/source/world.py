"""A log in a folder, what is in it, and planners of queries on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import catena
from catena import jobs
from catena.config import load
from catena.embedded import CompressionName
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.runtime import SystemClock, SystemEntropy
from catena.source.options import parse_batch, parse_stream
from catena.source.planner import Planner
from catena.source.splitting import Split
from catena.stores import open_stores
from tests.jobs.topics import inline

COMPRESSIONS: tuple[CompressionName, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000


class Row(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]


async def fill(folder: Path, partitions: int = 3, count: int = 10, start: int = 0) -> None:
    """So many records for each compression in each partition; a key, headers and no value in some."""
    async with catena.open(folder) as log:
        if start == 0:
            await log.create_topic("orders", partitions)
        for partition in range(partitions):
            for number, compression in enumerate(COMPRESSIONS):
                first = start + number * count
                messages = [
                    catena.Message(
                        None if each % 7 == 3 else f"value {each} of {partition}",
                        key=f"key {each}" if each % 2 else None,
                        headers={"origin": f"{each}", "empty": None} if each % 3 == 0 else (),
                        timestamp_ms=START_MS + each,
                    )
                    for each in range(first, first + count)
                ]
                await log.append_batch("orders", messages, partition=partition, compression=compression)


async def tier(folder: Path) -> None:
    """All that is there now."""
    settings = load(data=str(folder))
    report = await jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, open_work=inline(settings))
    assert not report.failed


async def rows_in(folder: Path, topic: str = "orders") -> list[Row]:
    """As a reader of the log finds them."""
    async with catena.open(folder) as log:
        partitions = (await log.topic(topic)).partitions
        return [
            Row(number, each.offset, each.key, each.value, each.timestamp, list(each.headers))
            for number in range(partitions)
            async for each in log.read(topic, number, "earliest")
        ]


class World(NamedTuple):
    """A log that is open, and the stores below it."""

    log: catena.Log
    node: Node
    objects: ObjectStore

    def batch(self, **options: str) -> Planner:
        return Planner(self.node, parse_batch(options))

    def stream(self, **options: str) -> Planner:
        return Planner(self.node, parse_stream(options))


@asynccontextmanager
async def open_world(folder: Path) -> AsyncIterator[World]:
    clock, entropy = SystemClock(), SystemEntropy()
    settings = load(data=str(folder))
    async with (
        catena.open(folder) as log,
        open_stores(settings, clock, entropy) as stores,
    ):
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
        try:
            yield World(log, node, stores.objects)
        finally:
            await node.close()


def shown(splits: Sequence[Split]) -> list[tuple[Any, ...]]:
    return [(split.topic, split.partition, split.start, split.end) for split in splits]
