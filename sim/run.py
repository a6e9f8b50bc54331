"""One seed, from its scenario to the verdict."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
from dataclasses import dataclass, field

from sim import checker, scenario, workload
from sim.chaos import Tally
from sim.checker import Violation
from sim.cluster import NoAnswer, World
from sim.history import History
from sim.loop import SimLoop, Stuck

VIRTUAL_S_MAX = 3600.0


@dataclass
class Result:
    seed: int
    violations: list[Violation]
    fingerprint: str
    steps: int
    tally: Tally
    transcript: list[str] = field(default_factory=list)


class _Errors(logging.Handler):
    """A background task that fails is logged by its owner, and nowhere else."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.texts.append(f"{record.getMessage()}: {error!r}")


def run_seed(seed: int, keep_transcript: bool = False) -> Result:
    drawn = scenario.draw(seed)
    loop = SimLoop(seed)
    history = History(now=loop.time, keep_transcript=keep_transcript)
    tally = Tally()
    world = World(drawn, loop, history, tally)
    history.note(str(drawn))
    errors = _Errors()
    logger = logging.getLogger("catena")
    logger.addHandler(errors)
    logger.propagate = False
    # Garbage is collected between runs only: a finalizer in the middle of one would depend on what ran before it.
    gc.disable()
    try:
        stuck = _run(world)
        world.invariants.check_end()
        violations = [
            *stuck,
            *world.violations,
            *world.invariants.violations,
            *checker.check(history),
            *(Violation("failed task", text) for text in (*errors.texts, *loop.failures)),
        ]
        return Result(seed, violations, history.fingerprint(), loop.steps, tally, history.transcript)
    finally:
        loop.bury()
        gc.enable()
        logger.removeHandler(errors)
        logger.propagate = True


def _run(world: World) -> list[Violation]:
    async def bounded() -> None:
        async with asyncio.timeout(VIRTUAL_S_MAX):
            await workload.run(world)

    try:
        world.loop.run(bounded())
    except (Stuck, TimeoutError, NoAnswer) as error:
        return [Violation("liveness", f"the run never ends: {error!r}")]
    except Exception as error:
        return [Violation("unexpected error", "".join(traceback.format_exception(error)))]
    return []
