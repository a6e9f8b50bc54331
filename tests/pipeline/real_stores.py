"""Logs on real stores, which several processes use: how they are filled, tiered, vacuumed, read and audited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catena import jobs
from catena.config import Settings, load
from catena.embedded import open_log
from catena.meta import keys
from catena.objects.counted import CountedObjects
from catena.pipeline.audit import AuditReport
from catena.pipeline.audit import audit as run_audit
from catena.pipeline.settings import TierSettings
from catena.pipeline.site import Site
from catena.pipeline.tasks import TaskContext
from catena.pipeline.tier_pass import PartitionReport, TierPass
from catena.pipeline.vacuum import VacuumReport
from catena.pipeline.vacuum import vacuum as run_vacuum
from catena.pipeline.work import InlineWork
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.postgres_server import PostgresServer
from catena.testing.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer
from catena.types import Offset, TopicPartition
from tests.clients.conftest import three_node_settings

SQLITE, POSTGRES, OBJECTS = "sqlite and folder", "postgres and s3", "objects and s3"
KINDS = (SQLITE, POSTGRES, OBJECTS)
"""The last one is a meta store in the bucket, which has no `transact`."""

DEADLINE_MS = 1000
GRACES = 4
GRACE_MS = GRACES * DEADLINE_MS
"""Little more than settings allow: the date of an object on S3 has no more than seconds."""
SINGLES = TierSettings(segment_bytes=1, min_age_ms=0, min_bytes=0, merge_segments=1_000_000)
"""A segment for each run, and none is merged."""
MERGING = TierSettings(segment_bytes=6000, min_age_ms=0, min_bytes=0, merge_segments=2)


def make_settings(
    kind: str,
    folder: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    deadline_ms: int = DEADLINE_MS,
) -> Settings:
    """Stores that no other test has, with as short a grace as may be."""
    options: dict[str, Any] = {}
    name = f"real_{SystemEntropy().hex_id()}"
    if kind != SQLITE:
        s3: SeaweedServer = request.getfixturevalue("s3_server")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        bucket = f"s3://{BUCKET}/{name}?endpoint={s3.endpoint}&region=us-east-1&lists_as_tree=true"
        options = {"meta": "objects:", "objects": bucket}
        if kind == POSTGRES:
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            options["meta"] = three_node_settings(name, postgres, s3)["CATENA_META"]
    return load(
        data=str(folder),
        **options,
        diskless={"writer": {"commit_deadline_ms": deadline_ms}},
        pipeline={
            "tier": msgspec.to_builtins(MERGING),
            "vacuum": {"grace_ms": GRACES * deadline_ms, "longest_job_ms": deadline_ms, "shown_keys": 1_000_000},
        },
    )


def value_of(topic: str, offset: Offset) -> str:
    return f"{topic} {offset} {'x' * 500}"


async def fill(settings: Settings, topics: Sequence[str], start: Offset, count: int) -> None:
    """Topics are made when their first records are written. Each record is a run of its own."""
    async with open_log(settings) as log:
        if start == 0:
            await asyncio.gather(*(log.create_topic(topic) for topic in topics))
        for number in range(start, start + count):
            offsets = await asyncio.gather(*(log.append(topic, value_of(topic, number)) for topic in topics))
            assert set(offsets) == {number}


async def trim(settings: Settings, topics: Sequence[str], start: Offset) -> None:
    async with open_log(settings) as log:
        for topic in topics:
            assert await log.trim(topic, start) == start


async def check_content(settings: Settings, topics: Sequence[str], start: Offset, end: Offset) -> None:
    """A node that has just started reads every record once, in order."""
    async with open_log(settings) as log:
        for topic in topics:
            found = [(record.offset, record.value) async for record in log.read(topic)]
            assert found == [(offset, value_of(topic, offset).encode()) for offset in range(start, end)], topic


async def left_behind(settings: Settings) -> list[str]:
    """What of jobs is in the meta store."""
    async with open_driver(settings) as driver:
        found = []
        for place in await jobs.find_places(driver.site, jobs.EVERYTHING):
            records = [await driver.site.meta.get(key) for key in _keys_of_jobs(place.tp)]
            found += [record.key for record in records if record is not None]
        return found


def _keys_of_jobs(tp: TopicPartition) -> tuple[str, str]:
    return keys.compaction(tp), keys.compactor_claim(tp)


async def expire_claims(settings: Settings) -> None:
    """Their sessions would do so in half a minute."""
    async with open_driver(settings) as driver:
        for place in await jobs.find_places(driver.site, jobs.EVERYTHING):
            await driver.site.meta.delete(keys.compactor_claim(place.tp))


class RealDriver:
    """Jobs in this process, on stores that stay open."""

    def __init__(self, settings: Settings, site: Site, work: InlineWork) -> None:
        self._settings = settings
        self.site = site
        self.work = work

    async def tier(
        self, settings: TierSettings = MERGING, which: jobs.Which = jobs.EVERYTHING
    ) -> list[PartitionReport]:
        places = await jobs.find_places(self.site, which)
        return await TierPass(self.site, self.work, settings, jobs.MAX_OFFSET).run(places)

    async def vacuum(self, dry_run: bool = False) -> VacuumReport:
        return await run_vacuum(self.site, self.work, self._settings.pipeline.vacuum, dry_run)

    async def audit(self) -> AuditReport:
        places = await jobs.find_places(self.site, jobs.EVERYTHING)
        return await run_audit(self.site, self.work, places, self._settings.pipeline.audit)


@asynccontextmanager
async def open_driver(settings: Settings) -> AsyncIterator[RealDriver]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with jobs.open_site(settings, clock, entropy) as (site, _):
        counted = CountedObjects(site.objects, clock)
        work = InlineWork(TaskContext(site.objects, clock, entropy, counted))
        yield RealDriver(settings, site, work)


async def check_sound(settings: Settings, offsets: int | None = None) -> None:
    """An audit finds nothing at all. `offsets`: so many are stored, trimmed ones included that share a segment."""
    async with open_driver(settings) as driver:
        report = await driver.audit()
    assert (report.ok, report.defects, report.unchecked) == (True, (), ())
    if offsets is not None:
        assert report.offsets == offsets
