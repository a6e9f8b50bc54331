"""One seed of the group scenario."""

from __future__ import annotations

from collections.abc import Iterator

from sim import group_checker, group_scenario, group_workload, trial
from sim.chaos import Tally
from sim.checker import Violation
from sim.group_cluster import GroupWorld
from sim.group_history import GroupHistory
from sim.loop import SimLoop
from sim.trial import Result


def run_seed(seed: int, keep_transcript: bool = False) -> Result:
    loop = SimLoop(seed)
    world = GroupWorld(group_scenario.draw(seed), loop, GroupHistory(loop.time, keep_transcript), Tally())

    def check() -> Iterator[Violation]:
        yield from world.invariants.violations
        yield from group_checker.check(world.history)

    return trial.run(world, group_workload.run(world), check)
