"""The JVM of a service is killed, and the service goes on with another one, in the same process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from catena import jobs
from catena.config import load
from catena.embedded import open_log
from tests.clients.waiting import until
from tests.pipeline.conftest import Sparks

EAGER = {"tier": {"min_age_ms": 0, "min_bytes": 0}, "service": {"every_ms": 200}}


def jvm() -> int:
    from pyspark import SparkContext

    assert SparkContext._gateway is not None
    process = SparkContext._gateway.proc
    pid: int = process.pid
    return pid


async def seen(look: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(until, look, what, 60.0)


async def test_passes_go_on_after_the_jvm_was_killed(sparks: Sparks, tmp_path: Path) -> None:
    sparks.close()  # one JVM at a time
    settings = load(data=str(tmp_path), pipeline=EAGER)

    async def append(value: str) -> None:
        async with open_log(settings) as log:
            await log.append("t", value)

    async with open_log(settings) as log:
        await log.create_topic("t")
    async with jobs.open_service(settings, jobs.on_spark(settings, "local[1]")) as running:
        serving = asyncio.create_task(running.service.run())
        await append("before")
        await seen(lambda: running.state.figures.tier.runs == 1, "the first run is tiered")
        killed = jvm()
        os.kill(killed, signal.SIGKILL)
        await append("after")
        await seen(lambda: running.state.figures.tier.runs == 2, "the second run is tiered")
        figures = running.state.figures
        assert (figures.spark.restarts, figures.spark.failures) == (1, 0)
        assert "Spark has ended" in figures.spark.last_error
        assert figures.jobs["tier"].runs["failed"] == 1
        assert figures.tasks.tasks == 2
        assert jvm() != killed
        assert killed not in map(int, filter(str.isdecimal, os.listdir("/proc")))
        running.service.end()
        await serving
        assert running.state.troubles == []
    async with open_log(settings) as log:
        assert [record.value async for record in log.read("t")] == [b"before", b"after"]
