"""One seed of the compaction scenario."""

from __future__ import annotations

from collections.abc import Iterator

from sim import compact_scenario, compact_workload, trial
from sim.chaos import Tally
from sim.checker import Violation
from sim.compact_workload import CompactWorld
from sim.history import History
from sim.loop import SimLoop
from sim.pipeline_workload import VIRTUAL_S_MAX
from sim.trial import Result


def run_seed(seed: int, keep_transcript: bool = False) -> Result:
    loop = SimLoop(seed)
    world = CompactWorld(compact_scenario.draw(seed), loop, History(loop.time, keep_transcript), Tally())

    def check() -> Iterator[Violation]:
        world.invariants.check_end()
        yield from world.invariants.violations

    return trial.run(world, compact_workload.run(world), check, VIRTUAL_S_MAX)
