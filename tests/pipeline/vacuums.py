"""Vacuums of a test's cluster: time leaps, and what is stored gets old at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from catena.meta import keys
from catena.pipeline.settings import VacuumSettings
from catena.pipeline.tasks.listing import Kind, kind_of
from catena.pipeline.vacuum import VacuumReport, vacuum
from catena.runtime import SystemClock
from tests.loglets.stores import ContentTagged, Stores
from tests.pipeline.drivers import Driver
from tests.virtual_log.cluster import TOPIC, Cluster

PARTITIONS = 2
SETTINGS = VacuumSettings(objects_per_s=1_000_000)


class LeapingClock(SystemClock):
    """The date leaps, and whoever waits does not wait long."""

    def __init__(self) -> None:
        self._leapt_ms = 0

    def leap(self, milliseconds: int) -> None:
        self._leapt_ms += milliseconds

    def now_ms(self) -> int:
        return super().now_ms() + self._leapt_ms

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 1000)


class AgingCluster(Cluster):
    """All its stores have the same date. Its topic has few partitions."""

    def __init__(self, stores: Stores) -> None:
        self.time = stores.clock = LeapingClock()
        stores.objects = ContentTagged(self.time)
        super().__init__(stores)
        self._topic_exists = True

    async def create_topic(self, name: str = TOPIC) -> None:
        await (await self.node()).node.topics.create(name, PARTITIONS)

    def age(self) -> None:
        """All that is there is old enough now."""
        self.time.leap(SETTINGS.grace_ms + 1000)

    async def vacuum(self, dry_run: bool = False, settings: VacuumSettings = SETTINGS) -> VacuumReport:
        return await vacuum_by(Driver(self), dry_run, settings)

    async def objects(self) -> list[str]:
        return [info.key async for info in self.stores.objects.list(keys.ROOT) if kind_of(info.key) is not None]

    async def kinds(self) -> Counter[Kind | None]:
        return Counter(kind_of(key) for key in await self.objects())


def writes(driver: Driver) -> list[str]:
    """The steps that have changed something."""
    changing = ("put ", "delete ", "delete_range ", "transact")
    return [step for step in driver.steps.names if step.startswith(changing) or step.endswith(" put")]


def counts(report: VacuumReport) -> dict[Kind, int]:
    return {kind: amount.objects for kind, amount in report.orphans.items()}


async def vacuum_by(driver: Driver, dry_run: bool = False, settings: VacuumSettings = SETTINGS) -> VacuumReport:
    return await vacuum(driver.site, driver.work, settings, dry_run)


@asynccontextmanager
async def aging_cluster(way: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[AgingCluster]:
    async with Stores(way, folder, request) as stores:
        cluster = AgingCluster(stores)
        await cluster.create_topic()
        yield cluster
