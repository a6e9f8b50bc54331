"""One seed of the scenario of writes."""

from __future__ import annotations

from collections.abc import Iterator

from sim import checker, trial, writes_workload, writes_world
from sim.chaos import Tally
from sim.checker import Violation
from sim.history import History
from sim.loop import SimLoop
from sim.trial import Result
from sim.writes_workload import Version
from sim.writes_world import WritesWorld


def run_seed(seed: int, keep_transcript: bool = False) -> Result:
    loop = SimLoop(seed)
    scenario = writes_world.draw(seed)
    world = WritesWorld(scenario, loop, History(loop.time, keep_transcript), Tally())
    versions: list[Version] = []

    def check() -> Iterator[Violation]:
        world.invariants.check_end()
        yield from world.invariants.violations
        yield from checker.check(world.history)
        yield from writes_workload.check(world, versions)

    with writes_world.small_limits(scenario):
        return trial.run(world, writes_workload.run(world, versions), check, writes_workload.VIRTUAL_S_MAX)
