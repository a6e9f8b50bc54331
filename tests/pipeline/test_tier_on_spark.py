"""Tiering by real Spark, on real stores: tasks move the bytes, and the driver reads none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from catena import jobs
from catena.config import Settings, load
from catena.embedded import open_log
from catena.pipeline.report import RunReport
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.work import Work
from catena.runtime import SystemEntropy
from catena.store_spec import StoreSpec
from catena.testing.postgres_server import PostgresServer
from catena.testing.s3_server import SeaweedServer
from tests.clients.conftest import three_node_settings
from tests.pipeline.conftest import LOCAL, Sparks

PARTITIONS = 6
RECORDS = 300
VALUE = "x" * 4000


@pytest.fixture(params=["folder and sqlite", "s3 and postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    tiers = {"tier": {"segment_bytes": 400_000, "task_bytes": 500_000}}
    if request.param == "folder and sqlite":
        yield load(data=str(tmp_path), pipeline=tiers)
        return
    s3: SeaweedServer = request.getfixturevalue("s3_server")
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    stores = three_node_settings(f"tier_{SystemEntropy().hex_id()}", postgres, s3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, stores[name])
    yield load(data=str(tmp_path), meta=stores["CATENA_META"], objects=stores["CATENA_OBJECTS"], pipeline=tiers)


@asynccontextmanager
async def kept(work: SparkWork) -> AsyncIterator[Work]:
    yield work


async def fill(settings: Settings, start: int) -> None:
    async with open_log(settings) as log:
        if start == 0:
            await log.create_topic("t", PARTITIONS)
        for number in range(start, start + RECORDS, 50):
            await asyncio.gather(
                *(
                    log.append("t", f"{each} {VALUE}", partition=each % PARTITIONS)
                    for each in range(number, number + 50)
                )
            )


async def content(settings: Settings) -> list[int]:
    async with open_log(settings) as log:
        found = []
        for partition in range(PARTITIONS):
            async for record in log.read("t", partition=partition):
                assert record.value is not None
                found.append(int(record.value.split()[0]))
    return sorted(found)


async def tiered(settings: Settings, sparks: Sparks, master: str) -> RunReport:
    work = SparkWork(sparks.get(master), StoreSpec.of(settings), SystemEntropy())
    try:
        return await jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, open_work=lambda: kept(work))
    finally:
        work.close()


async def test_every_record_is_there_before_and_after(settings: Settings, sparks: Sparks) -> None:
    for start in (0, RECORDS):
        await fill(settings, start)
        report = await tiered(settings, sparks, LOCAL)
        assert [each.outcome for each in report.partitions] == ["tiered"] * PARTITIONS
        assert await content(settings) == list(range(start + RECORDS))
    again = await tiered(settings, sparks, LOCAL)
    assert again.failed == 0
    assert await content(settings) == list(range(2 * RECORDS))
