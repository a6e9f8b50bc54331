"""One seed of the pipeline scenario."""

from __future__ import annotations

from collections.abc import Iterator

from sim import checker, pipeline_scenario, pipeline_workload, trial
from sim.chaos import Tally
from sim.checker import Violation
from sim.history import History
from sim.loop import SimLoop
from sim.pipeline_cluster import PipelineWorld
from sim.trial import Result


def run_seed(seed: int, keep_transcript: bool = False) -> Result:
    loop = SimLoop(seed)
    world = PipelineWorld(pipeline_scenario.draw(seed), loop, History(loop.time, keep_transcript), Tally())

    def check() -> Iterator[Violation]:
        world.invariants.check_end()
        yield from world.invariants.violations
        yield from checker.check(world.history)

    return trial.run(world, pipeline_workload.run(world), check, pipeline_workload.VIRTUAL_S_MAX)
