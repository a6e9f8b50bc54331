"""A real process is killed, or stopped and woken up, at each write of a job: another one goes on, and nothing is lost.

The job tiers, merges and drops. Each step has a topic of its own, so that one store does for all of them, and all that
were stopped wake up at the same time. Signals come before each step, and in the long tests after each: what is stored
is mostly the same, but who wakes up is late with its write, or knows that it is done.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from catena.config import Settings
from tests.pipeline.mortal_driver import Drivers, MortalDriver, Plan
from tests.pipeline.real_stores import (
    KINDS,
    OBJECTS,
    POSTGRES,
    SINGLES,
    SQLITE,
    check_content,
    check_sound,
    expire_claims,
    fill,
    left_behind,
    make_settings,
    open_driver,
    trim,
)

SMALL_SEGMENTS, RUNS, TRIMMED = 7, 12, 2
RECORDS = SMALL_SEGMENTS + RUNS
STEPS = (
    "put compactor-claim",
    "put chain",
    "put compaction",
    *["segment put"] * 3,
    "manifest put",
    "put compaction",
    "put chain",
    "put compaction",
    "delete_range index",
    "delete compaction",
    "delete compactor-claim",
)
STEPS_WITHOUT_TRANSACT = ("put index", *STEPS)
"""The last append may be in the control record only."""
EXPIRY_MAX_S = 120.0


def is_long(kind: str, applied: bool) -> bool:
    return kind == OBJECTS or applied


CASES = [
    pytest.param(kind, applied, marks=[pytest.mark.long] if is_long(kind, applied) else [])
    for kind in KINDS
    for applied in (False, True)
]


@pytest.fixture
def drivers() -> Iterator[Drivers]:
    drivers = Drivers()
    yield drivers
    drivers.close()


@pytest.fixture
def settings(kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return make_settings(kind, tmp_path, request, monkeypatch)


def steps_of(settings: Settings) -> tuple[str, ...]:
    return STEPS_WITHOUT_TRANSACT if settings.meta == "objects:" else STEPS


def topics_of(settings: Settings) -> list[str]:
    """One for each step."""
    return [f"step-{at}" for at in range(1, len(steps_of(settings)) + 1)]


async def prepare(settings: Settings, topics: list[str]) -> None:
    """Small segments, some of which are below the start of their log, and runs behind them."""
    await fill(settings, topics, 0, SMALL_SEGMENTS)
    async with open_driver(settings) as driver:
        assert {report.outcome for report in await driver.tier(SINGLES)} == {"tiered"}
    await fill(settings, topics, SMALL_SEGMENTS, RUNS)
    await trim(settings, topics, TRIMMED)


async def begin_all(settings: Settings, drivers: Drivers, number: signal.Signals, applied: bool) -> list[MortalDriver]:
    """One for each step, on the topic of this step; they have begun, and the signal has come."""
    begun = [
        drivers.begin(Plan(settings, topic=topic, at=at, signal=number, applied=applied))
        for at, topic in enumerate(topics_of(settings), 1)
    ]
    for driver in begun:
        if number == signal.SIGKILL:
            assert await driver.end_anyhow() is None, driver.plan
        else:
            assert await driver.stops(), driver.plan
    return begun


async def check_whole(settings: Settings, end: int) -> None:
    assert await left_behind(settings) == []
    topics = topics_of(settings)
    await check_content(settings, topics, TRIMMED, end)
    await check_sound(settings, len(topics) * (end - TRIMMED))


@pytest.mark.parametrize("kind", [SQLITE, pytest.param(OBJECTS, marks=pytest.mark.long)])
async def test_the_job_tiers_merges_and_drops_in_these_steps(settings: Settings, drivers: Drivers) -> None:
    await prepare(settings, ["whole"])
    told = await drivers.begin(Plan(settings, topic="whole")).end()
    assert told.steps == steps_of(settings)
    [report] = told.reports
    assert (report.outcome, report.dropped, report.merged, report.runs) == ("tiered", 2, 5, RUNS)


@pytest.mark.parametrize(("kind", "applied"), CASES)
async def test_a_driver_that_is_killed(settings: Settings, drivers: Drivers, applied: bool) -> None:
    await prepare(settings, topics_of(settings))
    await begin_all(settings, drivers, signal.SIGKILL, applied)
    await check_content(settings, topics_of(settings), TRIMMED, RECORDS)
    await expire_claims(settings)
    told = await drivers.finish(settings)
    assert told.outcomes == {"tiered", "idle"}
    assert told.recovered == {"nothing", "abandoned", "finished"}
    await check_whole(settings, RECORDS)


@pytest.mark.parametrize(("kind", "applied"), CASES)
async def test_a_driver_that_sleeps_and_wakes_up(settings: Settings, drivers: Drivers, applied: bool) -> None:
    """A step that holds a lock of the database would hold up the others, and none does: each is a transaction."""
    await prepare(settings, topics_of(settings))
    sleepers = await begin_all(settings, drivers, signal.SIGSTOP, applied)
    await expire_claims(settings)
    await finish_two_ranges(settings, drivers)
    await wake(sleepers)
    await check_content(settings, topics_of(settings), TRIMMED, RECORDS + 2)
    await drivers.finish(settings)
    await check_whole(settings, RECORDS + 2)


async def finish_two_ranges(settings: Settings, drivers: Drivers) -> None:
    for number in range(2):
        assert (await drivers.finish(settings)).outcomes <= {"tiered", "idle"}
        await fill(settings, topics_of(settings), RECORDS + number, 1)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", [POSTGRES, OBJECTS])
async def test_claims_of_those_that_sleep_end_by_themselves(settings: Settings, drivers: Drivers) -> None:
    """Seen by a driver that stays, as the service does: in a bucket time passes only for those who look."""
    await prepare(settings, topics_of(settings))
    sleepers = await begin_all(settings, drivers, signal.SIGSTOP, applied=False)
    async with open_driver(settings) as driver, asyncio.timeout(EXPIRY_MAX_S):
        assert "busy" in {report.outcome for report in await driver.tier()}
        for number in range(2):
            while "busy" in {report.outcome for report in await driver.tier()}:
                pass
            await fill(settings, topics_of(settings), RECORDS + number, 1)
    await wake(sleepers, for_long=True)
    await check_content(settings, topics_of(settings), TRIMMED, RECORDS + 2)
    await drivers.finish(settings)
    await check_whole(settings, RECORDS + 2)


async def wake(sleepers: list[MortalDriver], for_long: bool = False) -> None:
    for sleeper in sleepers:
        sleeper.wake()
    reports = [report for sleeper in sleepers for report in (await sleeper.end()).reports]
    failed = [report for report in reports if report.outcome == "failed"]
    # Who sleeps for longer than a request may take may be told that there was no answer to it.
    assert [report for report in failed if not (for_long and report.error.endswith("no answer in time"))] == []
    outcomes = {report.outcome for report in reports if report not in failed}
    assert outcomes <= {"tiered", "stale", "idle", "busy"}
    assert {"tiered", "stale"} <= outcomes, "some had committed before they fell asleep, and most had not"
