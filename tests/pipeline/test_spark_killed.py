"""A process of Spark's is killed in the middle of tiering: the run survives it, or says so, and another one finishes.

The task whose process is killed has written its segments and not answered yet.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from catena import jobs
from catena.config import Settings
from catena.errors import ObjectMissing, RetryLater
from catena.pipeline.report import RunReport
from catena.pipeline.settings import TierSettings
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.tasks import RunTask, run_task
from catena.runtime import SystemClock, SystemEntropy
from catena.store_spec import StoreSpec
from tests.pipeline.conftest import CLUSTER, LOCAL, Sparks
from tests.pipeline.deeds import POLL_S, parent_of
from tests.pipeline.real_stores import POSTGRES, SQLITE, check_sound, left_behind, make_settings
from tests.pipeline.spark_stays import DEADLY, STAYS, die_of_one, stay_once
from tests.pipeline.test_spark_work import gone
from tests.pipeline.test_tier_on_spark import PARTITIONS, RECORDS, content, fill, kept

TIER = TierSettings(segment_bytes=50_000, min_age_ms=0, min_bytes=0, task_bytes=50_000)
"""Several tasks for each partition."""
ONE_TASK = TierSettings(segment_bytes=1 << 20, min_age_ms=0, min_bytes=0, task_bytes=1)
"""For each partition."""
START_MAX_S = 90.0
"""Executors start their workers when they get their first task."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def settings(kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return tiering_by(make_settings(kind, tmp_path, request, monkeypatch), TIER)


def tiering_by(settings: Settings, tier: TierSettings) -> Settings:
    return msgspec.structs.replace(settings, pipeline=msgspec.structs.replace(settings.pipeline, tier=tier))


@asynccontextmanager
async def tiering(
    settings: Settings, sparks: Sparks, master: str, run: RunTask
) -> AsyncIterator[asyncio.Task[RunReport]]:
    work = SparkWork(sparks.get(master), StoreSpec.of(settings), SystemEntropy(), run)
    tier = jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, open_work=lambda: kept(work))
    running = asyncio.ensure_future(tier)
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.wait([running])
        work.close()


async def who_stays(settings: Settings) -> int:
    """The worker of the task that does not answer."""
    async with StoreSpec.of(settings)(SystemClock(), SystemEntropy()) as (objects, _), asyncio.timeout(START_MAX_S):
        while True:
            try:
                return int((await objects.get(STAYS)).data)
            except ObjectMissing:
                await asyncio.sleep(POLL_S)


async def check_whole(settings: Settings) -> None:
    assert await left_behind(settings) == []
    assert await content(settings) == list(range(RECORDS))
    await check_sound(settings, RECORDS)


@pytest.mark.parametrize(
    ("kind", "master", "whom"),
    [
        pytest.param(SQLITE, LOCAL, "worker"),
        pytest.param(POSTGRES, CLUSTER, "worker", marks=pytest.mark.long),
        pytest.param(POSTGRES, CLUSTER, "executor", marks=pytest.mark.long),
    ],
)
async def test_a_run_survives_it(settings: Settings, sparks: Sparks, master: str, whom: str) -> None:
    await fill(settings, 0)
    async with tiering(settings, sparks, master, stay_once) as running:
        worker = await who_stays(settings)
        assert not running.done()
        os.kill(worker if whom == "worker" else parent_of(parent_of(worker)), signal.SIGKILL)
        report = await running
    assert [each.outcome for each in report.partitions] == ["tiered"] * PARTITIONS
    await gone(worker)
    await check_whole(settings)


@pytest.mark.long
@pytest.mark.parametrize("kind", [SQLITE])
async def test_what_always_kills_its_worker_fails_alone(settings: Settings, sparks: Sparks) -> None:
    settings = tiering_by(settings, ONE_TASK)
    await fill(settings, 0)
    async with tiering(settings, sparks, LOCAL, die_of_one) as running:
        report = await running
    assert {each.partition: each.outcome for each in report.partitions} == {
        number: "failed" if number == DEADLY else "tiered" for number in range(PARTITIONS)
    }
    assert [each.error for each in report.partitions if each.error.startswith("Spark gave it up after 3 tries: ")]
    assert await content(settings) == list(range(RECORDS))
    await check_sound(settings, RECORDS)
    async with tiering(settings, sparks, LOCAL, run_task) as running:
        assert [(each.partition, each.outcome) for each in (await running).partitions] == [(DEADLY, "tiered")]
    await check_whole(settings)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "master"), [(POSTGRES, CLUSTER), (SQLITE, LOCAL)])
async def test_a_jvm_that_is_killed_ends_the_run_and_another_one_finishes(
    settings: Settings, sparks: Sparks, master: str
) -> None:
    await fill(settings, 0)
    async with tiering(settings, sparks, master, stay_once) as running:
        worker = await who_stays(settings)
        os.kill(sparks.get(master).sparkContext._gateway.proc.pid, signal.SIGKILL)
        with pytest.raises(RetryLater, match="Spark has ended, and a new session has to be opened"):
            await running
    sparks.close()
    await gone(worker)
    assert await content(settings) == list(range(RECORDS))
    async with tiering(settings, sparks, master, run_task) as running:
        report = await running
    assert [(each.outcome, each.recovered) for each in report.partitions] == [("tiered", "abandoned")] * PARTITIONS
    await check_whole(settings)
