"""A vacuum is killed, or stopped and woken up, at each of its steps, while the log is written, tiered and trimmed.

Steps are all that it asks of the stores, reads included, and the signal comes before each: what it has seen may be old
when it wakes up. Nothing that is referred to is ever deleted, and the next vacuum deletes what was left.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from catena.config import Settings
from catena.embedded import Log, open_log
from tests.clients.waiting import until
from tests.pipeline.mortal_driver import Drivers, Plan, Told
from tests.pipeline.real_stores import (
    GRACE_MS,
    KINDS,
    MERGING,
    POSTGRES,
    SINGLES,
    RealDriver,
    check_content,
    check_sound,
    make_settings,
    open_driver,
    value_of,
)

TOPICS = ["a", "b"]
STEPS_MIN = 20
STEPS_MAX = 200
KEPT = 40
"""Records; what is older is trimmed."""
ROUND = 4
ROUNDS = 5
"""While vacuums sleep."""
ROUNDS_AHEAD = 6
"""Of life, beside each step of a test. Without an end to it objects come faster than they are listed and audited where
the machine is slow, and no step ever ends."""
AWAKE = 8
"""Vacuums that are woken up at the same time. With fifty each is so slow that it takes itself for one that sleeps."""
NEWS_MAX_S = 10 * GRACE_MS / 1000

LONG = [pytest.param(kind, 1, marks=[pytest.mark.long, pytest.mark.timeout(600)]) for kind in KINDS]
SHORT = pytest.param(POSTGRES, 7)


@pytest.fixture
def drivers() -> Iterator[Drivers]:
    drivers = Drivers()
    yield drivers
    drivers.close()


@pytest.fixture
def settings(kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return make_settings(kind, tmp_path, request, monkeypatch)


class Life:
    """Topics that are written to, tiered, merged and trimmed all the time."""

    def __init__(self, log: Log, driver: RealDriver) -> None:
        self._log = log
        self.driver = driver
        self.start = self.end = self._rounds = 0
        self._granted = 0
        self._round_over = asyncio.Event()
        self._more = asyncio.Event()
        self._turn = asyncio.Lock()
        self._is_finished = False

    def grant(self, rounds: int) -> None:
        """It may go on for so many from now."""
        self._granted = max(self._granted, self._rounds + rounds)
        self._more.set()

    def finish(self) -> None:
        self._is_finished = True
        self._more.set()

    async def go_on(self) -> None:
        while True:
            while self._rounds >= self._granted and not self._is_finished:
                self._more.clear()
                await self._more.wait()
            if self._is_finished:
                return
            async with self._turn:
                await self._live_a_round()
            self._round_over.set()
            await asyncio.sleep(0)  # whoever wants to rest

    async def live_on(self, rounds: int) -> None:
        """Wait for so many rounds."""
        async with asyncio.timeout(NEWS_MAX_S):
            for _ in range(rounds):
                self.grant(1)
                self._round_over.clear()
                await self._round_over.wait()

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """Nothing changes, and all that there is, segments and runs, is old enough to be taken for an orphan."""
        async with self._turn:
            await self._write()
            since = time.monotonic()
            await asyncio.to_thread(until, lambda: time.monotonic() > since + 1 + GRACE_MS / 1000, "it is old")
            yield

    async def _live_a_round(self) -> None:
        await self._write()
        self._rounds += 1
        reports = await self.driver.tier(MERGING if self._rounds % 3 == 0 else SINGLES)
        assert {report.outcome for report in reports} <= {"tiered", "idle"}, reports
        if self.end - self.start > KEPT:
            self.start = self.end - KEPT // 2
            for topic in TOPICS:
                await self._log.trim(topic, self.start)

    async def _write(self) -> None:
        for number in range(self.end, self.end + ROUND):
            await asyncio.gather(*(self._log.append(topic, value_of(topic, number)) for topic in TOPICS))
        self.end += ROUND

    async def wait_for_orphans(self) -> None:
        """Until a vacuum has something to delete."""
        self.grant(ROUNDS_AHEAD)
        async with asyncio.timeout(NEWS_MAX_S):
            while not (await self.driver.vacuum(dry_run=True)).orphans:
                self.grant(1)


@asynccontextmanager
async def living(settings: Settings) -> AsyncIterator[Life]:
    """Life goes on in the background, and is over at the end. All is well then."""
    async with open_log(settings) as log, open_driver(settings) as driver:
        for topic in TOPICS:
            await log.create_topic(topic)
        life = Life(log, driver)
        going_on = asyncio.ensure_future(life.go_on())
        try:
            yield life
        finally:
            life.finish()
            await going_on
    await check_content(settings, TOPICS, life.start, life.end)
    await check_sound(settings)


@pytest.mark.parametrize(("kind", "stride"), LONG)
async def test_a_vacuum_that_is_killed(settings: Settings, drivers: Drivers, stride: int) -> None:
    killed: list[int] = []
    async with living(settings) as life:
        for at in count(1, stride):
            await life.wait_for_orphans()
            plan = Plan(settings, "vacuum", at=at)
            if (told := await drivers.begin(plan).end_anyhow()) is not None:
                assert told.deleted > 0
                break
            killed.append(at)
            assert at < STEPS_MAX
            audited = await life.driver.audit()
            assert (audited.damage, audited.unlisted) == ((), 0), plan
    assert killed[-1] >= STEPS_MIN


@pytest.mark.parametrize(("kind", "stride"), [SHORT, *LONG])
async def test_a_vacuum_that_sleeps_and_wakes_up(settings: Settings, drivers: Drivers, stride: int) -> None:
    sleepers = []
    async with living(settings) as life:
        for at in count(1, stride):
            await life.wait_for_orphans()
            plan = Plan(settings, "vacuum", at=at, signal=signal.SIGSTOP)
            sleeper = drivers.begin(plan)
            if not await sleeper.stops():
                break
            sleepers.append(sleeper)
            assert at < STEPS_MAX
        await life.live_on(ROUNDS)
        await life.wait_for_orphans()
        assert (await life.driver.vacuum()).deleted.objects > 0
        async with life.resting():
            told: list[Told] = []
            for start in range(0, len(sleepers), AWAKE):
                awake = sleepers[start : start + AWAKE]
                for sleeper in awake:
                    sleeper.wake()
                told += [await sleeper.end() for sleeper in awake]
            audited = await life.driver.audit()
            assert (audited.ok, audited.defects) == (True, ())
    assert sleepers[-1].plan.at >= STEPS_MIN
    for each, sleeper in zip(told, sleepers, strict=True):
        check_excuse(each, sleeper.plan.at)
    assert sum(each.deleted for each in told) > 0


def check_excuse(told: Told, at: int) -> None:
    """Who falls asleep between putting a date and looking at it can't tell that from a clock that is wrong. A request
    that was under way when it fell asleep, for another partition, has got no answer in time."""
    if told.refused:
        assert "incarnation" in told.steps[at - 1], told
        assert "slept" in told.refused
    if told.interrupted:
        assert told.interrupted.startswith("StoreUnavailable: "), told
