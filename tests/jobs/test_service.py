"""The service over HTTP; its passes are in tests/pipeline/test_service.py, and with Spark in tests/cli."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from catena import jobs
from catena.config import Settings
from catena.http.base import HttpRequest
from catena.pipeline.settings import PipelineSettings, TierSettings
from tests.jobs.topics import inline, make_topics


async def get(running: jobs.Running, path: str) -> bytes:
    return (await running.state.routes[path]["GET"](HttpRequest("GET", path))).body


async def get_json(running: jobs.Running, path: str) -> Any:
    return msgspec.json.decode(await get(running, path))


async def test_what_it_does_can_be_seen(tmp_path: Path) -> None:
    settings: Settings = await make_topics(tmp_path)
    settings = msgspec.structs.replace(settings, pipeline=PipelineSettings(TierSettings(min_age_ms=0, min_bytes=0)))

    async with jobs.open_service(settings, inline(settings)) as running:
        health = await get_json(running, "/health")
        assert (health["status"], health["passes"], health["last_pass_at_ms"]) == ("running", 0, None)
        await running.service.pass_once()
        running.service.end()
        health = await get_json(running, "/health")
        assert (health["status"], health["passes"], health["failing"]) == ("ending", 1, [])
        metrics = await get_json(running, "/metrics")
        assert metrics["service"]["outcomes"] == {"tiered": 1}
        assert metrics["tasks"]["bytes_read"] > 0
        assert b"catena_pipeline_passes_total 1.0" in await get(running, "/metrics/prometheus")
