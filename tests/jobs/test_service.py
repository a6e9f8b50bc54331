"""The service over HTTP; its schedule is in tests/pipeline/test_service.py, and with Spark it is in tests/cli."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import catena
from catena import jobs
from catena.config import Settings
from catena.errors import ConfigError, UnknownTopic
from catena.http.base import HttpRequest
from catena.pipeline.settings import PipelineSettings, ServiceSettings, TierSettings, VacuumSettings
from tests.jobs.topics import inline, make_topics, no_spark

EAGER = TierSettings(min_age_ms=0, min_bytes=0)
SHORT = VacuumSettings(grace_ms=59_000, longest_job_ms=1)


async def get(running: jobs.Running, path: str) -> bytes:
    return (await running.state.routes[path]["GET"](HttpRequest("GET", path))).body


async def get_json(running: jobs.Running, path: str) -> Any:
    return msgspec.json.decode(await get(running, path))


async def settings_in(folder: Path, **pipeline: Any) -> Settings:
    settings = await make_topics(folder)
    return msgspec.structs.replace(settings, pipeline=PipelineSettings(**{"tier": EAGER, **pipeline}))


async def test_what_it_does_can_be_seen(tmp_path: Path) -> None:
    settings = await settings_in(tmp_path)
    async with jobs.open_service(settings, inline(settings)) as running:
        health = await get_json(running, "/health")
        assert health["status"] == "running"
        assert [(job, each["last_at_ms"]) for job, each in health["jobs"].items()] == [
            ("retention", None),
            ("tier", None),
            ("compact", None),
            ("tables", None),
            ("tables-upkeep", None),
            ("writes", None),
            ("vacuum", None),
            ("audit", None),
        ]
        await running.service.run_once()
        running.service.end()
        health = await get_json(running, "/health")
        assert (health["status"], health["failing"], health["failing_partitions"]) == ("ending", [], 0)
        outcomes = {job: each["last_outcome"] for job, each in health["jobs"].items()}
        assert outcomes.pop("audit") is None
        names = ("retention", "tier", "compact", "tables", "tables-upkeep", "writes", "vacuum")
        assert outcomes == dict.fromkeys(names, "good")
        metrics = await get_json(running, "/metrics")
        assert metrics["tier"]["outcomes"] == {"tiered": 1}
        assert metrics["lag"]["records"] == 0
        assert metrics["stages"]["commit"]["count"] == 1
        assert metrics["tasks"]["bytes_read"] > 0
        assert metrics["requests_cost_usd"] > 0
        assert (metrics["vacuum"]["listed"] > 0, metrics["audit"]) == (True, None)
        assert running.state.troubles == []
        told = await get(running, "/metrics/prometheus")
        assert b'catena_pipeline_job_runs_total{name="tier",outcome="good"} 1.0' in told


async def test_what_fails_is_shown(tmp_path: Path) -> None:
    settings = await settings_in(tmp_path)
    (blob, *_) = sorted((tmp_path / "objects" / "llog" / "wal-shared").iterdir())
    blob.unlink()
    async with jobs.open_service(settings, inline(settings)) as running:
        await running.service.run_once()
        health = await get_json(running, "/health")
        assert health["jobs"]["tier"]["last_outcome"] == "partly"
        assert blob.name in health["jobs"]["tier"]["last_error"]
        assert health["failing_partitions"] == 1
        ((where, error),) = [((each["topic"], each["partition"]), each["error"]) for each in health["failing"]]
        assert where == ("b", 1)
        assert blob.name in error
        (trouble,) = running.state.troubles
        assert trouble.startswith("tier: ")


async def test_a_grace_that_writers_may_outlast_is_refused_if_there_is_a_vacuum(tmp_path: Path) -> None:
    settings = await settings_in(tmp_path, vacuum=SHORT)
    with pytest.raises(ConfigError, match="commit_deadline_ms"):
        async with jobs.open_service(settings, no_spark):
            pass
    for which, schedule in [
        (jobs.Which("b"), ServiceSettings()),
        (jobs.EVERYTHING, ServiceSettings(vacuum_every_ms=0)),
    ]:
        settings = await settings_in(tmp_path / (which.topic or "all"), vacuum=SHORT, service=schedule)
        async with jobs.open_service(settings, inline(settings), which) as running:
            await running.service.run_once()
            assert running.service.counts["vacuum"].last_outcome is None
            assert running.service.counts["tier"].last_outcome == "good"


async def test_a_topic_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    settings = await settings_in(tmp_path)
    with pytest.raises(UnknownTopic):
        async with jobs.open_service(settings, no_spark, jobs.Which("nothing")):
            pass


EVERY_MS = ServiceSettings(
    every_ms=1,
    retention_every_ms=1,
    compact_every_ms=1,
    tables_every_ms=1,
    tables_upkeep_every_ms=1,
    vacuum_every_ms=1,
    writes_every_ms=1,
    audit_every_ms=1,
)


async def test_all_jobs_beside_each_other_and_beside_a_writer(tmp_path: Path) -> None:
    settings = await settings_in(tmp_path, service=EVERY_MS)
    values: list[bytes] = []
    async with jobs.open_service(settings, inline(settings)) as running:
        serving = asyncio.ensure_future(running.service.run())
        async with asyncio.timeout(60), catena.open(tmp_path) as log:
            while min(counts.runs["good"] for counts in running.service.counts.values()) < 3:
                values.append(f"{len(values)}".encode())
                await log.append("a", values[-1], partition=0)
        running.service.end()
        await serving
        assert running.state.troubles == []
        assert [counts.last_error for counts in running.service.counts.values()] == [""] * 8
        assert running.state.figures.tier.outcomes["tiered"] > 1
    async with catena.open(tmp_path) as log:
        assert [record.value async for record in log.read("a", partition=0)] == values
