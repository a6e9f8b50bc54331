"""Writes without Spark: blobs as tasks store them, drivers that commit them, and what is in the logs then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from catena.config import Settings
from catena.formats import wal_blob
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.meta import keys
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.runtime import Clock, SystemEntropy
from catena.source.adopting import Adopter, Written, stamp_of
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects
from catena.types import ABSENT
from catena.virtual_log.intents import StoredBlob, StoredRun
from catena.virtual_log.topics import TopicRecord
from tests.loglets.stores import QuickClock
from tests.virtual_log.cluster import TOPIC, Cluster, read_all

T = TypeVar("T")

APP = "a query"
HOUR_S = 3600
MAX_AGE_MS = 6 * HOUR_S * 1000


async def store_blob(
    objects: ObjectStore,
    clock: Clock,
    topic: TopicRecord,
    values: Mapping[int, Sequence[Sequence[str]]],
    version: int = 0,
    task: int = 0,
    number: int = 0,
    app: str = APP,
) -> StoredBlob:
    """What task `task` has stored as its blob `number`: batches of values, by partition."""
    stamp = stamp_of(app, version, task, number)
    sections = []
    for partition, batches in values.items():
        bodies, sequence = [], 0
        for batch in batches:
            records = [(None, value.encode(), (), 1000 + version) for value in batch]
            bodies.append(
                build_batch(records, producer_id=stamp.producer_id, producer_epoch=stamp.epoch, base_sequence=sequence)
            )
            sequence += len(batch)
        sections.append(
            wal_blob.Section(topic.name, topic.topic_id, partition, sequence, wal_blob.KAFKA_BATCH_V2, bodies)
        )
    chunks, positions = wal_blob.encode("cluster", clock.now_ms(), sections)
    key = keys.wal_blob(SystemEntropy().hex_id())
    await objects.put(key, chunks, ABSENT)
    runs = tuple(
        StoredRun(
            topic.topic_id,
            section.partition,
            at,
            sum(map(len, section.bodies)),
            section.msg_count,
            max(parse_header(body).max_timestamp for body in section.bodies),
        )
        for section, at in zip(sections, positions, strict=True)
    )
    return StoredBlob(key, clock.now_ms(), *stamp, runs)


class Steps(Faults):
    """Numbers the steps of a driver from `count` on, and stops it at one: before the step is done, or after."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.stopped = asyncio.Event()
        self.go_on = asyncio.Event()
        self._counts = False
        self._at = 0
        self._applied = False

    def count(self, at: int, applied: bool) -> None:
        self._counts, self._at, self._applied = True, at, applied

    async def take(self, step: str, apply: Callable[[], Awaitable[T]]) -> T:
        if not self._counts:
            return await super().take(step, apply)
        self.names.append(step)
        if len(self.names) != self._at:
            return await apply()
        if self._applied:
            result = await apply()
            await self._stop()
            return result
        await self._stop()
        return await apply()

    async def _stop(self) -> None:
        self.stopped.set()
        await self.go_on.wait()


class WritingDriver:
    def __init__(self, node: Node, steps: Steps, clock: Clock) -> None:
        self.node = node
        self.steps = steps
        self._clock = clock

    @classmethod
    async def start(cls, cluster: Cluster) -> WritingDriver:
        stores, steps = cluster.stores, Steps()
        node = await Node.start(
            Settings(),
            FaultyMeta(await stores.open_meta(), steps),
            FaultyObjects(stores.objects, steps),
            stores.clock,
            SystemEntropy(),
            cluster.medium,
        )
        stores.close_at_end(node.close)
        return cls(node, steps, stores.clock)

    async def write(
        self, name: str, version: int = 0, partitions: Sequence[int] = (0, 1), tasks: int = 2, app: str = APP
    ) -> Written:
        """Of each task two blobs, of each two batches for each partition; values say which attempt they are of."""
        topic = await self.node.topics.get(TOPIC)
        blobs = [
            await store_blob(
                self.node.objects,
                self._clock,
                topic,
                {
                    each: [[f"{name}.{task}.{number}.a", f"{name}.{task}.{number}.b"], [f"{name}.{task}.{number}.c"]]
                    for each in partitions
                },
                version,
                task,
                number,
                app,
            )
            for task in range(tasks)
            for number in range(2)
        ]
        return Written({topic.topic_id: topic.name}, blobs)

    async def write_nothing(self) -> Written:
        return Written({}, [])

    def adopter(self, app: str = APP, forget: bool = False) -> Adopter:
        return Adopter(self.node, SystemEntropy(), app, MAX_AGE_MS, forget)

    async def commit(self, version: int, written: Written, app: str = APP, forget: bool = False) -> None:
        await self.adopter(app, forget).commit(version, written)


def values_of(name: str, tasks: int = 2) -> list[str]:
    """What `write` means to be in each partition."""
    return [f"{name}.{task}.{number}.{letter}" for task in range(tasks) for number in range(2) for letter in "abc"]


def leap(cluster: Cluster, seconds: float) -> None:
    assert isinstance(cluster.stores.clock, QuickClock)
    cluster.stores.clock.leap(seconds)


async def content(cluster: Cluster, partition: int) -> list[str]:
    return await read_all(await (await cluster.node()).log(partition))
