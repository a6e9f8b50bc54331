"""Tables of all topics, in one run and by the service. What becomes of one is in tests/tables."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import catena
from catena import jobs
from catena.config import Settings, load
from catena.errors import ConfigError, UnknownTopic
from catena.jobs import OpenWork, Which, tabling
from catena.jobs.service import open_service
from catena.jobs.tabling import TablePasses
from catena.pipeline.renewed_work import renewed
from catena.pipeline.service import Ran
from catena.pipeline.settings import PipelineSettings
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import InlineWork, TaskFailed, Work
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_objects
from catena.tables import building
from catena.tables.figures import TableFigures
from catena.tables.report import UpkeepReport
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


class Held:
    """Work that waits with the files of one table until it is let go."""

    def __init__(self, work: Work, prefix: bytes, gate: asyncio.Event) -> None:
        self._work = work
        self._prefix = prefix
        self._gate = gate
        self.usage = work.usage
        self.table = work.table

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        if any(self._prefix in plan for plan in plans):
            await self._gate.wait()
        return await self._work.run(task, plans, done)


async def test_a_table_that_takes_long_holds_up_no_other(tmp_path: Path) -> None:
    settings = await make(tmp_path, "a", "b")
    often = msgspec.structs.replace(settings.pipeline.service, tables_every_ms=1)
    settings = msgspec.structs.replace(settings, pipeline=PipelineSettings(service=often))
    gate, clock = asyncio.Event(), SystemClock()

    @asynccontextmanager
    async def held() -> AsyncIterator[Work]:
        async with inline(settings)() as work:
            yield Held(work, b"tables/delta/a", gate)

    async with (
        asyncio.timeout(60),
        jobs.open_site(settings, clock, SystemEntropy()) as (site, _),
        renewed(held, clock) as work,
        catena.open(tmp_path) as log,
    ):
        passes = TablePasses(settings, site, work, jobs.EVERYTHING)
        building = asyncio.ensure_future(passes.build(lambda: False))
        for number in (1, 2, 3):
            while passes.figures.get("b", TableFigures()).rows < number:
                assert not building.done()
                await log.tail("b")
            await log.append("b", "more")
        await log.create_topic("c")
        await log.node.topics.alter_configs("c", {"table.enable": "true", "table.commit.interval.ms": "1"})
        await log.append("c", "x")
        while passes.figures.get("c", TableFigures()).rows < 1:
            await log.tail("c")
        assert passes.figures["a"].rows == 0
        gate.set()
        assert await building == Ran("good")
        assert passes.figures["a"].rows == 1


async def test_a_table_that_is_switched_off_while_it_is_tidied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, clock = await make(tmp_path, "a"), SystemClock()
    keep_up = tabling.keep_up_tables
    async with (
        jobs.open_site(settings, clock, SystemEntropy()) as (site, _),
        renewed(inline(settings), clock) as work,
        catena.open(tmp_path) as log,
    ):
        passes = TablePasses(settings, site, work, jobs.EVERYTHING)

        async def meanwhile(*given: Any) -> list[list[UpkeepReport]]:
            reports = await keep_up(*given)
            await log.node.topics.alter_configs("a", {"table.enable": "false"})
            assert await passes.build(lambda: False) == Ran()
            return reports

        monkeypatch.setattr(tabling, "keep_up_tables", meanwhile)
        assert await passes.keep_up(lambda: False) == Ran("good")


async def test_one_that_has_much_to_catch_up_with_takes_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "Driver", functools.partial(building.Driver, max_records=2))
    settings = await make(tmp_path, "a", "b")
    async with catena.open(tmp_path) as log:
        for number in range(9):
            await log.append("a", f"{number}")
    async with open_service(settings, inline(settings)) as running:
        await running.service.run_once()
        figures = running.state.figures.tables
        assert (figures["a"].rows, figures["a"].commits, figures["a"].records_behind) == (10, 5, 0)
        assert (figures["b"].rows, figures["b"].commits) == (1, 1)


async def test_a_run_that_would_never_end_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the service could not tell that all is well, nor see that the stores were set back. Each has its turn."""
    monkeypatch.setattr(building, "Driver", functools.partial(building.Driver, max_records=2))
    monkeypatch.setattr(tabling, "RUN_S", 0.0)
    settings = await make(tmp_path, "a", "b", "c", "d", "e")
    async with catena.open(tmp_path) as log:
        for number in range(9):
            await log.append("a", f"{number}")
    async with open_service(settings, inline(settings)) as running:
        figures = running.state.figures
        for commits in (1, 2):
            await running.service.run_once()
            figures = running.state.figures
            assert (figures.tables["a"].commits, figures.tables["a"].records_behind) == (commits, 10 - 2 * commits)
            assert [figures.tables[topic].rows for topic in "bcde"] == [1] * 4
        assert figures.jobs["tables"].runs["good"] == 2
