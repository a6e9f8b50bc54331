"""Vacuum by real Spark, on real stores: thousands of objects are listed, compared and deleted by tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from catena.config import Settings, load
from catena.embedded import open_log
from catena.meta import keys
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.pipeline.settings import VacuumSettings
from catena.pipeline.site import Place, Site
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.tasks.listing import kind_of
from catena.pipeline.tier_pass import TierPass
from catena.pipeline.vacuum import VacuumReport, vacuum
from catena.pipeline.work import Usage, used
from catena.runtime import SystemClock, SystemEntropy
from catena.runtime.tasks import map_bounded
from catena.store_spec import StoreSpec
from catena.stores import open_stores
from catena.testing.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.cluster import join_cluster
from catena.virtual_log.topics import list_topics
from tests.clients.waiting import until
from tests.pipeline.conftest import CLUSTER, LOCAL, Sparks

PARTITIONS = 4
RECORDS = 200
ORPHANS = 2000
GRACE = VacuumSettings(grace_ms=6_000, longest_job_ms=1, objects_per_s=100_000)
CLOCK, ENTROPY = SystemClock(), SystemEntropy()


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.long)])
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    tiers = {"tier": {"segment_bytes": 100_000}}
    if request.param == "folder":
        yield load(data=str(tmp_path), pipeline=tiers)
        return
    s3: SeaweedServer = request.getfixturevalue("s3_server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    place = f"s3://{BUCKET}/vacuum_{ENTROPY.hex_id()}?endpoint={s3.endpoint}&region=us-east-1&lists_as_tree=true"
    yield load(data=str(tmp_path), objects=place, pipeline=tiers)


class Yard:
    """A log, the stores below it, and a Spark that works on them."""

    def __init__(self, settings: Settings, site: Site, requests: CountedObjects, work: SparkWork) -> None:
        self.settings = settings
        self.site = site
        self.requests = requests
        self.work = work

    async def fill(self, start: int) -> None:
        async with open_log(self.settings) as log:
            if start == 0:
                await log.create_topic("t", PARTITIONS)
            for number in range(start, start + RECORDS):
                await log.append("t", f"{number} {'x' * 2000}", partition=number % PARTITIONS)

    async def content(self) -> list[int]:
        async with open_log(self.settings) as log:
            found = [
                int(record.value.split()[0])
                for partition in range(PARTITIONS)
                async for record in log.read("t", partition=partition)
                if record.value is not None
            ]
        return sorted(found)

    async def tier(self) -> None:
        (topic,) = await list_topics(self.site.meta)
        places = [Place(topic.partition(number), topic.kind) for number in range(PARTITIONS)]
        reports = await TierPass(self.site, self.work, self.settings.pipeline.tier, 1 << 62).run(places)
        assert [report.outcome for report in reports] == ["tiered"] * PARTITIONS

    async def vacuum(self, dry_run: bool = False) -> VacuumReport:
        return await vacuum(self.site, self.work, GRACE, dry_run)


@asynccontextmanager
async def open_yard(settings: Settings, sparks: Sparks, master: str) -> AsyncIterator[Yard]:
    async with open_stores(settings, CLOCK, ENTROPY) as stores:
        cluster = await join_cluster(stores.meta, stores.objects, CLOCK, ENTROPY)
        chains = ChainStore(stores.meta, CLOCK, ENTROPY)
        site = Site(cluster.cluster_id, stores.meta, stores.objects, chains, CLOCK, ENTROPY)
        work = SparkWork(sparks.get(master), StoreSpec.of(settings), ENTROPY)
        try:
            yield Yard(settings, site, stores.requests, work)
        finally:
            work.close()


async def ours(objects: ObjectStore) -> set[str]:
    return {info.key async for info in objects.list(keys.ROOT) if kind_of(info.key) is not None}


async def get_old() -> None:
    """By the real clock: the store dates its objects itself."""
    since_ms = CLOCK.now_ms()
    await asyncio.to_thread(until, lambda: CLOCK.now_ms() > since_ms + GRACE.grace_ms, "what is stored is old")


async def put_orphans(objects: ObjectStore) -> set[str]:
    orphans = [keys.wal_blob(ENTROPY.hex_id()) for _ in range(ORPHANS)]
    await map_bounded(32, lambda key: objects.put(key, [b"12345"]), orphans)
    return set(orphans)


async def test_orphans_among_thousands_are_deleted_and_no_others(settings: Settings, sparks: Sparks) -> None:
    async with open_yard(settings, sparks, LOCAL) as yard:
        objects = yard.site.objects
        await yard.fill(0)
        before = await ours(objects)
        await yard.tier()
        orphans = await put_orphans(objects) | before
        await yard.fill(RECORDS)
        await get_old()
        everything = await ours(objects)
        needed = everything - orphans
        assert {kind_of(key) for key in needed} == {"wal", "segment", "manifest"}

        dry = await yard.vacuum(dry_run=True)
        assert await ours(objects) == everything
        before_requests = yard.requests.snapshot()
        report = await yard.vacuum()
        driver = used(before_requests, yard.requests.snapshot(), 0)
        assert await ours(objects) == needed
        assert report.orphans == dry.orphans
        assert {kind: amount.objects for kind, amount in report.orphans.items()} == {"wal": len(orphans)}
        assert report.deleted == report.orphans["wal"]
        assert (report.kept_young, report.referenced, report.failed) == (0, len(needed), 0)
        assert set(dry.first_keys) <= orphans
        assert len(dry.first_keys) == GRACE.shown_keys
        asked = sum(report.executors.values(), Usage()).requests
        assert asked["list"] >= 64
        assert asked["delete"] >= len(orphans) / 1000
        assert not {"list", "delete"} & driver.requests.keys(), "tasks do that"
        assert await yard.content() == list(range(2 * RECORDS))
        again = await yard.vacuum()
        assert again.orphans == {}


@pytest.mark.long
async def test_executors_on_a_cluster_list_and_delete(tmp_path: Path, sparks: Sparks) -> None:
    async with open_yard(load(data=str(tmp_path)), sparks, CLUSTER) as yard:
        await yard.fill(0)
        needed = await ours(yard.site.objects)
        orphans = await put_orphans(yard.site.objects)
        await get_old()
        report = await yard.vacuum()
        assert report.deleted.objects == len(orphans)
        assert len(report.executors) == 2
        assert await ours(yard.site.objects) == needed
        assert await yard.content() == list(range(RECORDS))
