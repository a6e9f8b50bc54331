"""Drivers of jobs on the stores of a test's cluster: they work, die at a step, or fall asleep at one and wake up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from catena.errors import StoreUnavailable
from catena.meta import keys
from catena.objects.counted import CountedObjects
from catena.pipeline.settings import TierSettings
from catena.pipeline.site import Place, Site
from catena.pipeline.tasks import TaskContext
from catena.pipeline.tier_pass import PartitionReport, TierPass
from catena.pipeline.work import InlineWork
from catena.runtime import SystemEntropy
from catena.testing.contracts.loglet import make_entry
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects
from catena.types import Offset, TopicPartition
from catena.virtual_log.chain import Chain
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.log import VirtualLog
from tests.virtual_log.cluster import Cluster

T = TypeVar("T")

EVERYTHING = 1 << 62
SMALL = TierSettings(segment_bytes=2000, min_age_ms=0, min_bytes=0, merge_segments=4)


class Steps(Faults):
    """Numbers the steps of a driver, whatever they are. At step `at` it dies or sleeps; before it is done, or after."""

    def __init__(self, at: int = 0, sleeps: bool = False, applied: bool = False) -> None:
        super().__init__()
        self._at = at
        self._sleeps = sleeps
        self._applied = applied
        self.names: list[str] = []
        self.asleep = asyncio.Event()
        self.wake = asyncio.Event()

    async def take(self, step: str, apply: Callable[[], Awaitable[T]]) -> T:
        self.names.append(step)
        number = len(self.names)
        if self._at == 0 or number < self._at or (self._sleeps and number > self._at):
            return await super().take(step, apply)
        result = await apply() if self._applied and number == self._at else None
        if not self._sleeps:
            raise StoreUnavailable(f"this driver has died at step {self._at}")
        self.asleep.set()
        await self.wake.wait()
        return result if result is not None else await apply()


class Driver:
    def __init__(self, cluster: Cluster, steps: Steps | None = None, settings: TierSettings = SMALL) -> None:
        self.cluster = cluster
        self.steps = steps or Steps()
        self.settings = settings
        stores = cluster.stores
        objects = CountedObjects(FaultyObjects(stores.objects, self.steps), stores.clock)
        entropy = SystemEntropy()
        meta = FaultyMeta(stores.meta, self.steps)
        self.site = Site("cluster", meta, objects, ChainStore(meta, stores.clock, entropy), stores.clock, entropy)
        # One task at a time: then the steps have the same numbers each time.
        self.work = InlineWork(TaskContext(objects, stores.clock, entropy, objects), at_once=1)

    async def places(self, *partitions: int) -> list[Place]:
        log = await (await self.cluster.node()).log()
        return [Place(log.tp._replace(partition=number), log.kind) for number in partitions]

    def tier_pass(self, force_up_to: Offset | None = EVERYTHING) -> TierPass:
        return TierPass(self.site, self.work, self.settings, force_up_to)

    async def tier(self, *partitions: int, force_up_to: Offset | None = EVERYTHING) -> list[PartitionReport]:
        return await self.tier_pass(force_up_to).run(await self.places(*(partitions or (0,))))


def shape(chain: Chain) -> list[tuple[str, int, int | None]]:
    return [(link.kind, link.base, link.end) for link in chain.links]


async def append(log: VirtualLog, *values: str) -> list[str]:
    """Each in a run of its own."""
    for value in values:
        await log.append(make_entry(value))
    return list(values)


async def append_numbers(cluster: Cluster, count: int, start: int = 0) -> list[str]:
    log = await (await cluster.node()).log()
    return await append(log, *(f"{number} {'x' * 300}" for number in range(start, start + count)))


async def is_clean(cluster: Cluster, tp: TopicPartition, boundary: int) -> None:
    """No record, no claim and no index entry is left behind."""
    assert await cluster.stores.meta.get(keys.compaction(tp)) is None
    assert await cluster.stores.meta.get(keys.compactor_claim(tp)) is None
    assert all(end >= boundary for end in await cluster.index_ends(tp))
