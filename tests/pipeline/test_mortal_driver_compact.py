"""A process is killed, or stopped and woken up, at each write of a compaction: another goes on, and no key is lost.

Each step has a topic of its own, as in `test_mortal_driver`. All keys are in one bucket: then steps have the same
numbers each time, whatever the hashes.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from catena.config import Settings
from catena.embedded import open_log
from catena.pipeline.settings import CompactSettings
from tests.pipeline.mortal_driver import Drivers, MortalDriver, Plan
from tests.pipeline.real_stores import (
    POSTGRES,
    SINGLES,
    SQLITE,
    expire_claims,
    left_behind,
    make_settings,
    open_driver,
)

pytest.importorskip("pyarrow", reason="what compacts comes with the spark extra")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

KEYS, TIMES = 3, 4
WHOLE = "whole"
AT_ONCE = 4


@pytest.fixture(params=[SQLITE, POSTGRES])
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    made = make_settings(request.param, tmp_path, request, monkeypatch)
    small = CompactSettings(group_bytes=3500)
    return msgspec.structs.replace(made, pipeline=msgspec.structs.replace(made.pipeline, compact=small))


@pytest.fixture
def drivers() -> Iterator[Drivers]:
    drivers = Drivers()
    yield drivers
    drivers.close()


async def prepare(settings: Settings, topics: list[str]) -> None:
    """Logs in which each key was written again and again; they are tiered."""
    async with open_log(settings) as log:
        for topic in topics:
            await log.create_topic(topic)
            await log.node.topics.alter_configs(topic, lambda _: {"cleanup.policy": "compact"})
        for number in range(KEYS * TIMES):
            await asyncio.gather(
                *(log.append(topic, f"{number} {'x' * 500}", key=f"{number % KEYS}") for topic in topics)
            )
    async with open_driver(settings) as driver:
        assert {report.outcome for report in await driver.tier(SINGLES)} <= {"tiered", "idle"}


async def offsets_of(settings: Settings, topic: str) -> list[int]:
    async with open_log(settings) as log:
        found = [record async for record in log.read(topic)]
    assert all((record.value or b"").split()[0] == b"%d" % record.offset for record in found)
    return [record.offset for record in found]


async def begin_all(
    settings: Settings, drivers: Drivers, steps: int, number: signal.Signals, applied: bool
) -> list[MortalDriver]:
    """A few at a time, until the signal has come: each needs a second of CPU first."""
    begun: list[MortalDriver] = []
    for first in range(1, steps + 1, AT_ONCE):
        some = [
            drivers.begin(Plan(settings, "compact", f"step-{at}", at, number, applied))
            for at in range(first, min(first + AT_ONCE, steps + 1))
        ]
        for driver in some:
            if number == signal.SIGKILL:
                assert await driver.end_anyhow() is None, driver.plan
            else:
                assert await driver.stops(), driver.plan
        begun += some
    return begun


async def check(settings: Settings, topics: list[str]) -> None:
    assert await left_behind(settings) == []
    for topic in topics:
        assert await offsets_of(settings, topic) == list(range(KEYS * (TIMES - 1), KEYS * TIMES)), topic
    async with open_driver(settings) as driver:
        assert (await driver.audit()).ok


async def steps_of(settings: Settings, drivers: Drivers) -> int:
    await prepare(settings, [WHOLE])
    told = await drivers.begin(Plan(settings, "compact", WHOLE)).end()
    assert [report.outcome for report in told.compactions] == ["compacted"]
    assert told.steps.count("segment put") >= 5
    return len(told.steps)


@pytest.mark.parametrize("applied", [False, True])
async def test_killed_at_each_step(settings: Settings, drivers: Drivers, applied: bool) -> None:
    steps = await steps_of(settings, drivers)
    topics = [f"step-{at}" for at in range(1, steps + 1)]
    await prepare(settings, topics)
    await begin_all(settings, drivers, steps, signal.SIGKILL, applied)
    for topic in topics:
        found = await offsets_of(settings, topic)
        assert found[-KEYS:] == list(range(KEYS * (TIMES - 1), KEYS * TIMES)), topic
    await expire_claims(settings)
    told = await drivers.begin(Plan(settings, "compact")).end()
    assert {report.outcome for report in told.compactions} <= {"compacted", "idle"}
    assert {report.recovered for report in told.compactions} >= {"abandoned", "finished"}
    await check(settings, topics)


async def test_stopped_at_each_step_and_woken_up_when_another_has_gone_on(settings: Settings, drivers: Drivers) -> None:
    steps = await steps_of(settings, drivers)
    topics = [f"step-{at}" for at in range(1, steps + 1)]
    await prepare(settings, topics)
    begun = await begin_all(settings, drivers, steps, signal.SIGSTOP, applied=False)
    await expire_claims(settings)
    told = await drivers.begin(Plan(settings, "compact")).end()
    assert {report.outcome for report in told.compactions} <= {"compacted", "idle"}
    for driver in begun:
        driver.wake()
    outcomes = {report.outcome for driver in begun for report in (await driver.end()).compactions}
    assert outcomes <= {"compacted", "idle", "stale", "busy", "failed"}
    await drivers.begin(Plan(settings, "compact")).end()
    await check(settings, topics)
