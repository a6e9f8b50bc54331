"""One seed of the group scenario, from its draw to the verdict."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback

from sim import group_checker, group_scenario, group_workload
from sim.chaos import Tally
from sim.checker import Violation
from sim.cluster import NoAnswer
from sim.group_cluster import GroupWorld
from sim.group_history import GroupHistory
from sim.loop import SimLoop, Stuck
from sim.run import VIRTUAL_S_MAX, Result, _Errors


def run_seed(seed: int, keep_transcript: bool = False) -> Result:
    drawn = group_scenario.draw(seed)
    loop = SimLoop(seed)
    history = GroupHistory(now=loop.time, keep_transcript=keep_transcript)
    tally = Tally()
    world = GroupWorld(drawn, loop, history, tally)
    history.note(str(drawn))
    errors = _Errors()
    logger = logging.getLogger("catena")
    logger.addHandler(errors)
    logger.propagate = False
    gc.disable()  # as in `run`
    try:
        violations = [
            *_run(world),
            *world.violations,
            *world.invariants.violations,
            *group_checker.check(history),
            *(Violation("failed task", text) for text in (*errors.texts, *loop.failures)),
        ]
        return Result(seed, violations, history.fingerprint(), loop.steps, tally, history.transcript)
    finally:
        loop.bury()
        gc.enable()
        logger.removeHandler(errors)
        logger.propagate = True


def _run(world: GroupWorld) -> list[Violation]:
    async def bounded() -> None:
        async with asyncio.timeout(VIRTUAL_S_MAX):
            await group_workload.run(world)

    try:
        world.loop.run(bounded())
    except (Stuck, TimeoutError, NoAnswer) as error:
        return [Violation("liveness", f"the run never ends: {error!r}")]
    except Exception as error:
        return [Violation("unexpected error", "".join(traceback.format_exception(error)))]
    return []
