"""Compaction by real Spark, on real stores: tasks move the bytes, and the driver reads none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catena import jobs
from catena.columns.encode import encode
from catena.config import Settings, load
from catena.embedded import open_log
from catena.formats.compression import Compression
from catena.formats.record_batch import parse_header
from catena.formats.records import iter_records
from catena.loglets.base import Entry
from catena.pipeline.spark.work import SparkWork
from catena.runtime import SystemEntropy
from catena.store_spec import StoreSpec
from catena.testing.postgres_server import PostgresServer
from catena.testing.s3_server import SeaweedServer
from catena.virtual_log.log import VirtualLog
from tests.clients.conftest import three_node_settings
from tests.jobs.topics import inline
from tests.pipeline.conftest import CLUSTER, LOCAL, Sparks
from tests.pipeline.test_tier_on_spark import kept

SMALL: dict[str, Any] = {
    "tier": {"segment_bytes": 400_000},
    "compact": {"group_bytes": 200_000, "group_records": 8000, "bucket_records": 9000},
}
LARGE: dict[str, Any] = {
    "tier": {"segment_bytes": 64 << 20},
    "compact": {"group_bytes": 64 << 20, "bucket_records": 1_000_000},
}
APPENDS_AT_ONCE = 16
ROWS = 10_000


@pytest.fixture(params=["folder and sqlite", pytest.param("s3 and postgres", marks=pytest.mark.long)])
def stores(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if request.param == "folder and sqlite":
        return {"data": str(tmp_path)}
    s3: SeaweedServer = request.getfixturevalue("s3_server")
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    found = three_node_settings(f"compact_{SystemEntropy().hex_id()}", postgres, s3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, found[name])
    return {"data": str(tmp_path), "meta": found["CATENA_META"], "objects": found["CATENA_OBJECTS"]}


def batches(keys: int, times: int) -> Iterator[bytes]:
    """Each key so many times: record n has key n modulo `keys`, and says its number."""
    for first in range(0, keys * times, ROWS):
        numbers = range(first, min(first + ROWS, keys * times))
        rows = pa.table(
            {
                "key": [b"key %d" % (number % keys) for number in numbers],
                "value": [b"%d" % number for number in numbers],
            }
        )
        compression = Compression(first // ROWS % 5)
        yield from encode(rows, compression=compression, max_batch_bytes=50_000, time_ms=1)


async def fill(settings: Settings, keys: int, times: int) -> None:
    async with open_log(settings) as log:
        await log.create_topic("t", 1)
        await log.node.topics.alter_configs("t", lambda _: {"cleanup.policy": "compact"})
        virtual = await log.node.log("t", 0)
        waiting: list[asyncio.Task[int]] = []
        for batch in batches(keys, times):
            waiting.append(asyncio.ensure_future(virtual.append(Entry(parse_header(batch), batch))))
            if len(waiting) == APPENDS_AT_ONCE:
                await asyncio.gather(*waiting)
                waiting = []
        await asyncio.gather(*waiting)


async def read(log: VirtualLog) -> list[tuple[int, bytes | None, bytes | None]]:
    found, at, tail = [], 0, await log.tail()
    while at < tail:
        for batch in await log.read(at, 4 << 20):
            found += [(each.offset, each.key, each.value) for each in iter_records(batch.data, batch.offset)]
            at = batch.end
    return found


async def check(settings: Settings, keys: int, times: int) -> None:
    """Of each key the last record is there, at its offset, and nothing else; and all that is stored is sound."""
    async with open_log(settings) as log:
        found = await read(await log.node.log("t", 0))
    first = keys * (times - 1)
    assert found == [(number, b"key %d" % (number % keys), b"%d" % number) for number in range(first, first + keys)]
    assert (await jobs.audit(settings, open_work=inline(settings))).ok


@asynccontextmanager
async def spark_work(settings: Settings, sparks: Sparks, master: str) -> AsyncIterator[SparkWork]:
    work = SparkWork(sparks.get(master), StoreSpec.of(settings), SystemEntropy())
    try:
        yield work
    finally:
        work.close()


async def compacted(settings: Settings, sparks: Sparks, master: str) -> jobs.CompactRunReport:
    async with spark_work(settings, sparks, master) as work:
        await jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, open_work=lambda: kept(work))
        return await jobs.compact(settings, open_work=lambda: kept(work))


async def test_the_last_record_of_each_key_stays(stores: dict[str, Any], sparks: Sparks) -> None:
    settings = load(**stores, pipeline=SMALL)
    await fill(settings, keys=1000, times=30)
    report = await compacted(settings, sparks, LOCAL)
    (found,) = report.partitions
    assert (found.outcome, found.records_before, found.records, found.keys) == ("compacted", 30_000, 1000, 1000)
    assert "range_get" not in report.driver.requests
    await check(settings, keys=1000, times=30)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_by_executors_that_are_processes_of_their_own(stores: dict[str, Any], sparks: Sparks) -> None:
    settings = load(**stores, pipeline=SMALL)
    await fill(settings, keys=1000, times=30)
    report = await compacted(settings, sparks, CLUSTER)
    assert (report.failed, len(report.executors)) == (0, 2)
    await check(settings, keys=1000, times=30)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_ten_thousand_keys_a_thousand_times(tmp_path: Path, sparks: Sparks) -> None:
    settings = load(data=str(tmp_path), pipeline=LARGE)
    await fill(settings, keys=10_000, times=1000)
    report = await compacted(settings, sparks, LOCAL)
    (found,) = report.partitions
    assert (found.records_before, found.records, found.keys) == (10_000_000, 10_000, 10_000)
    assert found.bytes < found.bytes_before / 100
    await check(settings, keys=10_000, times=1000)
