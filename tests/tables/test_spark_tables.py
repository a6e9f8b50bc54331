"""Tables on real Spark: tasks write them, and Spark reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

import catena
from catena import jobs
from catena.config import Settings, load
from catena.jobs import OpenWork
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.work import Work
from catena.runtime import SystemEntropy
from catena.store_spec import StoreSpec
from catena.tables.tasks import run_task
from tests.sparks import CLUSTER, LOCAL, Sparks
from tests.tables.engines import ENGINES, by_spark

SCHEMA = '{"properties": {"n": {"type": "integer"}}}'
START_MS = 1_700_000_000_000
COUNT = 500


def on(sparks: Sparks, master: str, settings: Settings) -> OpenWork:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Work]:
        with closing(SparkWork(sparks.get(master), StoreSpec.of(settings), SystemEntropy(), run_task)) as work:
            yield work

    return opened


@contextmanager
def closing(work: SparkWork) -> Iterator[SparkWork]:
    try:
        yield work
    finally:
        work.close()


async def fill(settings: Settings, kind: str, first: int) -> None:
    from catena.embedded import open_log

    async with open_log(settings) as log:
        if first == 0:
            await log.create_topic(kind, 4)
            configs = {
                "table.enable": "true",
                "table.format": kind,
                "table.value.format": "json",
                "table.value.schema": SCHEMA,
            }
            await log.node.topics.alter_configs(kind, configs)
        for partition in range(4):
            numbers = range(first + partition, first + COUNT, 4)
            messages = [catena.Message(f'{{"n": {number}}}', timestamp_ms=START_MS) for number in numbers]
            await log.append_batch(kind, [*messages, catena.Message("bad", timestamp_ms=START_MS)], partition=partition)


def check(settings: Settings, sparks: Sparks, master: str) -> None:
    open_work = on(sparks, master, settings)
    for kind in ENGINES:
        asyncio.run(fill(settings, kind, 0))
    first = asyncio.run(jobs.tables(settings, open_work=open_work))
    assert [(each.rows, each.dead_letters, each.error) for each in first.tables] == [(COUNT, 4, "")] * 2
    assert first.executors
    for kind in ENGINES:
        asyncio.run(fill(settings, kind, COUNT))
    second = asyncio.run(jobs.tables(settings, open_work=open_work))
    assert [(each.rows, each.dead_letters, each.error) for each in second.tables] == [(COUNT, 4, "")] * 2
    assert [each.error for each in second.upkeep] == [""] * 4
    assert any(each.compacted for each in second.upkeep)
    expected = [("2023-11-14", 2 * COUNT, COUNT * (2 * COUNT - 1))]
    for kind, report in zip(ENGINES, second.tables, strict=True):
        assert by_spark(sparks.get(master), kind, report.table, settings) == expected


def small(settings: Settings) -> Settings:
    from msgspec import structs

    tables = structs.replace(settings.pipeline.tables, small_files=2)
    return structs.replace(settings, pipeline=structs.replace(settings.pipeline, tables=tables))


def test_on_this_machine(sparks: Sparks, tmp_path: Path) -> None:
    check(small(load(data=str(tmp_path))), sparks, LOCAL)


@pytest.mark.long
def test_on_a_cluster(sparks: Sparks, tmp_path: Path) -> None:
    check(small(load(data=str(tmp_path))), sparks, CLUSTER)
