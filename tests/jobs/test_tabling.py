"""Tables of all topics, in one run and by the service. What becomes of one is in tests/tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import catena
from catena import jobs
from catena.config import Settings, load
from catena.errors import ConfigError, UnknownTopic
from catena.jobs import OpenWork, Which
from catena.jobs.service import open_service
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import InlineWork, Work
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_objects
from catena.tables.tasks import run_task
from tests.jobs.topics import no_spark

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")


def inline(settings: Settings) -> OpenWork:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Work]:
        clock, entropy = SystemClock(), SystemEntropy()
        async with open_objects(settings, clock, entropy) as (objects, counted):
            yield InlineWork(TaskContext(objects, clock, entropy, counted), run_task)

    return opened


async def make(folder: Path, *topics: str, value_format: str = "raw") -> Settings:
    async with catena.open(folder) as log:
        for topic in topics:
            await log.create_topic(topic)
            configs = {"table.enable": "true", "table.value.format": value_format, "table.commit.interval.ms": "1"}
            await log.node.topics.alter_configs(topic, configs)
            await log.append(topic, "x")
        await log.create_topic("plain")
    return load(data=str(folder))


async def test_a_run(tmp_path: Path) -> None:
    settings = await make(tmp_path, "a", "b")
    planned = await jobs.tables(settings, dry_run=True, open_work=no_spark)
    assert [(each.topic, each.outcome, each.records_behind) for each in planned.tables] == [
        ("a", "planned", 1),
        ("b", "planned", 1),
    ]
    report = await jobs.tables(settings, open_work=inline(settings))
    assert [(each.topic, each.rows, each.error) for each in report.tables] == [("a", 1, ""), ("b", 1, "")]
    assert len(report.upkeep) == 2
    assert sum(usage.tasks for usage in report.executors.values()) == 2
    assert report.driver.requests["put"] == 4, "two entries of each log; files are the tasks'"
    again = await jobs.tables(settings, open_work=no_spark)
    assert [each.outcome for each in again.tables] == ["idle", "idle"]


async def test_one_topic(tmp_path: Path) -> None:
    settings = await make(tmp_path, "a", "b")
    report = await jobs.tables(settings, Which("b"), open_work=inline(settings))
    assert [each.topic for each in report.tables] == ["b"]
    with pytest.raises(UnknownTopic):
        await jobs.tables(settings, Which("c"))
    with pytest.raises(ConfigError, match=r"topic plain has no table: `catena topic config plain table.enable=true`"):
        await jobs.tables(settings, Which("plain"))
    assert (await jobs.has_tables(settings), await jobs.has_tables(settings, Which("plain"))) == (True, False)


async def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    settings = await make(tmp_path, "a")
    async with catena.open(tmp_path) as log:
        await log.create_topic("bad")
        configs = {"table.enable": "true", "table.value.format": "json", "table.value.schema": "{"}
        await log.node.topics.alter_configs("bad", configs)
        await log.append("bad", "x")
    report = await jobs.tables(settings, open_work=inline(settings))
    assert report.failed == 1
    assert [(each.topic, each.rows) for each in report.tables] == [("a", 1), ("bad", 0)]
    assert "topic config table.value.schema: it is no JSON object" in report.tables[1].error


async def test_without_tables(tmp_path: Path) -> None:
    settings = await make(tmp_path)
    assert (await jobs.tables(settings, open_work=no_spark)).tables == ()


async def test_the_service(tmp_path: Path) -> None:
    settings = await make(tmp_path, "a")
    async with open_service(settings, inline(settings)) as running:
        await running.service.run_once()
        figures = running.state.figures
        assert (figures.jobs["tables"].runs["good"], figures.jobs["tables-upkeep"].runs["good"]) == (1, 1)
        assert (figures.tables["a"].rows, figures.tables["a"].commits) == (1, 1)
        assert figures.tables["a"].freshness_ms > 0
        (response,) = [await running.state.prometheus(None)]  # type: ignore[arg-type]
        assert b'catena_pipeline_table_rows_total{topic="a"} 1.0' in response.body
        assert b'catena_pipeline_table_lag_seconds{topic="a"} 0.0' in response.body
    assert "plain" not in figures.tables


async def test_a_table_that_keeps_failing_is_set_aside(tmp_path: Path) -> None:
    settings = await make(tmp_path, "a", value_format="json")
    async with open_service(settings, inline(settings)) as running:
        for _ in range(5):
            await running.service.run_once()
        figures = running.state.figures
        assert figures.tables["a"].failures == 3
        assert figures.jobs["tables"].runs["partly"] == 5
        assert "table of a: ConfigError" in running.state.troubles[0]
