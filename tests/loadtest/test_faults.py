from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from catena.loadtest.faults import Faults, Happened
from catena.loadtest.run_folder import RunFolder
from catena.loadtest.scenario import Event
from catena.loadtest.stack import Stack
from catena.runtime import SystemClock, SystemNetwork
from tests.loadtest.conftest import SMALL, Watched
from tests.meta.manual_clock import ManualClock


class Seen:
    def __init__(self) -> None:
        self.all: list[Happened] = []
        self._news = asyncio.Event()

    def tell(self, happened: Happened) -> None:
        self.all.append(happened)
        self._news.set()

    async def wait_for(self, what: str) -> None:
        async with asyncio.timeout(60):
            while what not in [each.what for each in self.all]:
                self._news.clear()
                await self._news.wait()


@pytest.mark.long
async def test_a_node_is_killed_and_comes_back(stack: Stack) -> None:
    clock, seen = SystemClock(), Seen()
    faults = Faults(stack, clock, Watched(), seen.tell)
    now = clock.monotonic()
    faults.begin([Event("0%", kill="node-0", restart_after_s=0.1)], now, now, 10.0)
    await seen.wait_for("restarted")
    assert await stack.states() == {"node-0": "ready"}
    assert [each.what for each in seen.all] == ["kill", "restart", "restarted"]
    assert [each.t for each in seen.all] == sorted(each.t for each in seen.all)
    await faults.close()


async def test_at_the_end_who_stands_still_goes_on_and_nothing_else_happens(stack: Stack) -> None:
    clock, seen = SystemClock(), Seen()
    faults = Faults(stack, clock, Watched(), seen.tell)
    events = [Event("0s", stop="node-0", resume_after_s=600), Event("100%", kill="node-0")]
    faults.begin(events, clock.monotonic(), clock.monotonic(), 600.0)
    await seen.wait_for("stop")
    assert await stack.states() == {"node-0": "silent"}
    await faults.close()
    assert [each.what for each in seen.all] == ["stop", "resume"]
    assert await stack.states() == {"node-0": "ready"}


async def test_who_stands_still_goes_on_in_its_time(stack: Stack) -> None:
    clock, seen = SystemClock(), Seen()
    faults = Faults(stack, clock, Watched(), seen.tell)
    faults.begin([Event("0s", stop="node-0", resume_after_s=0.1)], clock.monotonic(), clock.monotonic(), 1.0)
    await seen.wait_for("resume")
    await faults.close()
    assert [each.what for each in seen.all] == ["stop", "resume"]
    assert await stack.states() == {"node-0": "ready"}


async def test_one_that_is_to_stand_still_twice_goes_on_when_both_times_are_over(stack: Stack) -> None:
    clock, seen = ManualClock(), Seen()
    faults = Faults(stack, clock, Watched(), seen.tell)
    events = [Event("0s", stop="node-0", resume_after_s=10), Event("5s", stop="node-0", resume_after_s=1)]
    now = clock.monotonic()
    faults.begin(events, now, now, 60.0)
    for _ in range(2):
        await clock.advance(0)
    for seconds in (5.0, 1.0):
        await clock.advance(seconds)
    assert [(each.what, each.t) for each in seen.all] == [("stop", 0.0), ("stop", 5.0)]
    assert await stack.states() == {"node-0": "silent"}
    await clock.advance(4.0)
    assert [(each.what, each.t) for each in seen.all[2:]] == [("resume", 10.0)]
    assert await stack.states() == {"node-0": "ready"}
    await faults.close()
    assert len(seen.all) == 3


async def test_one_that_is_gone_is_told(tmp_path: Path) -> None:
    stack = Stack(RunFolder.create(tmp_path, SMALL, 0), SystemClock(), SystemNetwork())
    clock, seen = SystemClock(), Seen()
    faults = Faults(stack, clock, Watched(), seen.tell)
    faults.begin([Event("0s", kill="node-0")], clock.monotonic(), clock.monotonic(), 1.0)
    await seen.wait_for("failed")
    assert seen.all[0].why == "it did not run"
    await faults.close()
