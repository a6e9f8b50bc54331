"""One run of any scenario, from the first step to the verdict."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sim.chaos import Tally
from sim.checker import Violation
from sim.history import History
from sim.loop import SimLoop, Stuck
from sim.machine import NoAnswer

VIRTUAL_S_MAX = 3600.0


class Drawn(Protocol):
    @property
    def seed(self) -> int: ...


class World(Protocol):
    """All there is in one run, as far as the verdict goes."""

    @property
    def scenario(self) -> Drawn: ...
    @property
    def loop(self) -> SimLoop: ...
    @property
    def history(self) -> History: ...
    @property
    def tally(self) -> Tally: ...
    @property
    def violations(self) -> list[Violation]:
        """What clients met and no rule over the history would see."""
        ...


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


def run(
    world: World,
    workload: Coroutine[Any, Any, None],
    check: Callable[[], Iterable[Violation]],
    virtual_s_max: float = VIRTUAL_S_MAX,
) -> Result:
    """`check` looks at what the workload has left."""
    seed, loop, history = world.scenario.seed, world.loop, world.history
    history.note(str(world.scenario))
    with _logged_errors() as errors:
        # Garbage is collected between runs only: a finalizer in the middle of one would depend on what ran before it.
        gc.disable()
        try:
            violations = [
                *_drive(loop, workload, virtual_s_max),
                *world.violations,
                *check(),
                *(Violation("failed task", text) for text in (*errors, *loop.failures)),
            ]
            return Result(seed, violations, history.fingerprint(), loop.steps, world.tally, history.transcript)
        finally:
            loop.bury()
            gc.enable()


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    errors = _Errors()
    logger = logging.getLogger("catena")
    logger.addHandler(errors)
    logger.propagate = False
    try:
        yield errors.texts
    finally:
        logger.removeHandler(errors)
        logger.propagate = True


def _drive(loop: SimLoop, workload: Coroutine[Any, Any, None], virtual_s_max: float) -> list[Violation]:
    async def bounded() -> None:
        async with asyncio.timeout(virtual_s_max):
            await workload

    try:
        loop.run(bounded())
    except (Stuck, TimeoutError, NoAnswer) as error:
        return [Violation("liveness", f"the run never ends: {error!r}")]
    except Exception as error:
        return [Violation("unexpected error", "".join(traceback.format_exception(error)))]
    return []
