"""Audits by real Spark, on real stores: tasks read all bytes, and the driver none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from catena.config import Settings, load
from catena.embedded import open_log
from catena.jobs import EVERYTHING, MAX_OFFSET, find_places, open_site
from catena.pipeline.audit import AuditReport, audit
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.tier_pass import TierPass
from catena.pipeline.work import Usage, used
from catena.runtime import SystemClock, SystemEntropy
from catena.store_spec import StoreSpec
from catena.testing.postgres_server import PostgresServer
from catena.testing.s3_server import SeaweedServer
from tests.clients.conftest import three_node_settings
from tests.pipeline.conftest import CLUSTER, LOCAL, Sparks

PARTITIONS = 4
RECORDS = 200
VALUE = "x" * 4000
SMALL = {"tier": {"segment_bytes": 200_000, "task_bytes": 300_000}, "audit": {"task_bytes": 200_000}}


@pytest.fixture(params=["folder and sqlite", pytest.param("s3 and postgres", marks=pytest.mark.long)])
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    if request.param == "folder and sqlite":
        yield load(data=str(tmp_path), pipeline=SMALL)
        return
    s3: SeaweedServer = request.getfixturevalue("s3_server")
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    stores = three_node_settings(f"audit_{SystemEntropy().hex_id()}", postgres, s3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, stores[name])
    yield load(data=str(tmp_path), meta=stores["CATENA_META"], objects=stores["CATENA_OBJECTS"], pipeline=SMALL)


async def fill(settings: Settings, start: int) -> None:
    async with open_log(settings) as log:
        if start == 0:
            await log.create_topic("t", PARTITIONS)
        for number in range(start, start + RECORDS, 50):
            appends = (
                log.append("t", f"{each} {VALUE}", partition=each % PARTITIONS) for each in range(number, number + 50)
            )
            await asyncio.gather(*appends)


async def half_tiered(settings: Settings, work: SparkWork) -> None:
    await fill(settings, 0)
    async with open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
        tiering = TierPass(site, work, settings.pipeline.tier, MAX_OFFSET)
        reports = await tiering.run(await find_places(site, EVERYTHING))
        assert [each.outcome for each in reports] == ["tiered"] * PARTITIONS
    await fill(settings, RECORDS)


async def audited(settings: Settings, work: SparkWork) -> tuple[AuditReport, Usage]:
    """The report, and what the driver asked of the object store."""
    async with open_site(settings, SystemClock(), SystemEntropy()) as (site, requests):
        places, before = await find_places(site, EVERYTHING), requests.snapshot()
        report = await audit(site, work, places, settings.pipeline.audit)
        return report, used(before, requests.snapshot(), 0)


async def a_segment(settings: Settings) -> str:
    async with open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
        keys = [info.key async for info in site.objects.list("llog/") if "/segments/" in info.key]
        return keys[0]


async def test_a_sound_log_and_one_that_is_not(settings: Settings, sparks: Sparks) -> None:
    work = SparkWork(sparks.get(LOCAL), StoreSpec.of(settings), SystemEntropy())
    try:
        await half_tiered(settings, work)
        report, driver = await audited(settings, work)
        assert (report.ok, report.defects, report.partitions) == (True, (), PARTITIONS)
        assert report.offsets == 2 * RECORDS
        assert report.bytes > 2 * RECORDS * len(VALUE)
        assert driver.requests.keys() <= {"get"}
        assert driver.bytes_read < report.bytes / 50, "manifests, and nothing else"
        key = await a_segment(settings)
        async with open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
            data = bytearray((await site.objects.get(key)).data)
            data[len(data) // 2] ^= 1
            await site.objects.put(key, [data])
        report, _ = await audited(settings, work)
        assert [(each.kind, each.key) for each in report.defects] == [("corrupt_batch", key)]
        assert not report.ok
        async with open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
            await site.objects.delete([key])
        report, _ = await audited(settings, work)
        assert [(each.kind, each.key) for each in report.defects] == [("missing_object", key)]
    finally:
        work.close()


@pytest.mark.long
async def test_all_executors_read_and_the_driver_does_not(tmp_path: Path, sparks: Sparks) -> None:
    settings = load(data=str(tmp_path), pipeline=SMALL)
    work = SparkWork(sparks.get(CLUSTER), StoreSpec.of(settings), SystemEntropy())
    try:
        await half_tiered(settings, work)
        before = dict(work.usage)
        report, driver = await audited(settings, work)
    finally:
        work.close()
    assert report.ok
    read = [work.usage[each].bytes_read - before[each].bytes_read for each in work.usage]
    assert len(read) == 2
    assert all(each > 0 for each in read)
    assert sum(read) >= report.bytes
    assert "range_get" not in driver.requests
    assert driver.bytes_read < report.bytes / 50
