"""Jobs run on their schedules, whatever fails in between, until the service is told to end. Time is virtual."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from catena.errors import StoreUnavailable
from catena.pipeline.service import ERROR_CHARS_MAX, Job, Ran, Service, ShouldStop
from catena.runtime import Tasks
from sim.loop import SimLoop
from sim.runtime import SimClock, SimEntropy

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
HOUR_S = 3600.0


class World:
    """Some jobs, which note when they have begun and ended."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self.begun: dict[str, list[float]] = {}
        self.ended: dict[str, list[float]] = {}

    def job(self, name: str, every_ms: int, takes_s: float = 0.0, **how: Any) -> Job:
        async def run(should_stop: ShouldStop) -> Ran:
            self.begun.setdefault(name, []).append(self.loop.time())
            await self.clock.sleep(takes_s)
            self.ended.setdefault(name, []).append(self.loop.time())
            return Ran("stopped" if should_stop() else "good")

        return Job(name, every_ms, run, **how)

    def service(self, *jobs: Job) -> Service:
        return Service(jobs, self.clock, SimEntropy(1))

    def serve(self, service: Service, seconds: float) -> None:
        """Until so many have passed, and then it is told to end."""

        async def main() -> None:
            tasks = Tasks("test")
            running = tasks.spawn("service", service.run())
            await self.clock.sleep(seconds)
            service.end()
            await running
            await tasks.close()

        self.loop.run(main())


def failing(error: Exception) -> Callable[[ShouldStop], Coroutine[Any, Any, Ran]]:
    async def run(should_stop: ShouldStop) -> Ran:
        raise error

    return run


@pytest.fixture
def world() -> Iterator[World]:
    loop = SimLoop(seed=1)
    yield World(loop)
    loop.bury()


def test_each_job_has_its_own_schedule(world: World) -> None:
    service = world.service(
        world.job("often", MINUTE_MS),
        world.job("seldom", 6 * HOUR_MS),
        world.job("never", 0),
        world.job("long", HOUR_MS),
    )
    world.serve(service, 24 * HOUR_S)
    runs = {name: counts.runs["good"] for name, counts in service.counts.items()}
    assert 1300 < runs["often"] < 1600
    assert 4 <= runs["seldom"] <= 6
    assert 20 <= runs["long"] <= 32
    assert runs["never"] == 0
    pauses = [after - before for before, after in zip(world.begun["often"], world.begun["often"][1:], strict=False)]
    assert 45 <= min(pauses) < 50 < 70 < max(pauses) <= 75


def test_what_takes_hours_keeps_nobody_waiting(world: World) -> None:
    service = world.service(world.job("long", HOUR_MS, takes_s=5 * HOUR_S), world.job("often", MINUTE_MS))
    world.serve(service, 4 * HOUR_S)
    assert service.counts["often"].runs["good"] > 200


def test_what_is_expensive_begins_after_a_part_of_its_period(world: World) -> None:
    first = []
    for seed in range(20):
        service = Service([world.job("dear", HOUR_MS, begins_at_once=False)], world.clock, SimEntropy(seed))
        began = world.loop.time()
        world.serve(service, HOUR_S + 1)
        first.append(world.begun.pop("dear")[0] - began)
    assert all(0 < each < HOUR_S for each in first)
    assert max(first) - min(first) > HOUR_S / 2


def test_a_job_that_fails_stops_no_other_and_is_tried_again(world: World) -> None:
    service = world.service(
        Job("away", MINUTE_MS, failing(StoreUnavailable("away"))),
        Job("buggy", MINUTE_MS, failing(ZeroDivisionError("oh" * 10_000))),
        world.job("sound", MINUTE_MS),
    )
    world.serve(service, HOUR_S)
    away, buggy, sound = service.counts.values()
    assert away.runs["failed"] > 40
    assert (away.last_error, away.last_good_at_ms, away.is_in_trouble) == ("StoreUnavailable: away", None, True)
    assert buggy.runs["failed"] > 40
    assert buggy.last_error.startswith("ZeroDivisionError: oh")
    assert len(buggy.last_error) == ERROR_CHARS_MAX
    assert sound.runs["good"] > 40
    assert (sound.last_error, sound.is_in_trouble) == ("", False)


def test_runs_are_counted_and_timed(world: World) -> None:
    outcomes = iter([Ran("partly", "one is bad"), Ran("good"), Ran("stopped")])

    async def run(should_stop: ShouldStop) -> Ran:
        await world.clock.sleep(2)
        return next(outcomes)

    service = world.service(Job("job", MINUTE_MS, run))
    counts = service.counts["job"]
    seen = []
    for _ in range(3):
        world.loop.run(service.run_once())
        seen.append((counts.last_outcome, counts.last_at_ms, counts.last_good_at_ms, counts.last_error))
    began_ms = world.clock.now_ms() - 6000
    assert seen == [
        ("partly", began_ms + 2000, None, "one is bad"),
        ("good", began_ms + 4000, began_ms + 4000, "one is bad"),
        ("stopped", began_ms + 6000, began_ms + 4000, "one is bad"),
    ]
    assert counts.runs == {"good": 1, "partly": 1, "stopped": 1, "failed": 0}
    assert (counts.seconds, counts.last_seconds, counts.running_since_ms) == (6, 2, None)


def test_told_to_end_it_waits_for_no_pause_and_for_what_is_under_way(world: World) -> None:
    service = world.service(world.job("idle", 100 * HOUR_MS), world.job("working", HOUR_MS, takes_s=100))
    world.serve(service, 30)
    assert world.loop.time() == 100
    assert service.counts["working"].runs["stopped"] == 1
    assert service.counts["idle"].runs["good"] == 1


def test_what_changes_nothing_is_cut_off(world: World) -> None:
    service = world.service(world.job("reading", HOUR_MS, takes_s=10 * HOUR_S, changes_nothing=True))
    world.serve(service, 30)
    assert world.loop.time() == 30
    assert "reading" not in world.ended
    counts = service.counts["reading"]
    assert (counts.runs["stopped"], counts.last_outcome, counts.running_since_ms) == (1, "stopped", None)


def test_once(world: World) -> None:
    service = world.service(
        world.job("first", HOUR_MS, takes_s=5),
        world.job("second", HOUR_MS, takes_s=5, begins_at_once=False),
        world.job("never", 0),
        world.job("not now", HOUR_MS, by_schedule_only=True),
    )
    world.loop.run(service.run_once())
    assert world.ended == {"first": [5], "second": [10]}
    service.end()
    world.loop.run(service.run_once())
    assert len(world.begun["first"]) == 1
