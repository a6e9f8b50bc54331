"""One seed of the log scenario."""

from __future__ import annotations

from collections.abc import Iterator

from sim import checker, scenario, tails, trial, workload
from sim.chaos import Tally
from sim.checker import Violation
from sim.cluster import World
from sim.history import History
from sim.loop import SimLoop
from sim.trial import Result


def run_seed(seed: int, keep_transcript: bool = False) -> Result:
    loop = SimLoop(seed)
    world = World(scenario.draw(seed), loop, History(loop.time, keep_transcript), Tally())
    if (shared := tails.drawn(seed, loop)) is not None:
        world.share_tails(shared)

    def check() -> Iterator[Violation]:
        world.invariants.check_end()
        yield from world.invariants.violations
        yield from checker.check(world.history)

    return trial.run(world, workload.run(world), check)
