"""What steps take is added up, also when they fail."""

from __future__ import annotations

import asyncio

import pytest

from catena.pipeline.stages import Stages
from sim.loop import SimLoop
from sim.runtime import SimClock


def test_side_by_side_and_in_vain() -> None:
    loop = SimLoop(seed=1)
    clock = SimClock(loop)
    stages = Stages(clock)

    async def plan(seconds: float) -> None:
        with stages.timing("plan"):
            await clock.sleep(seconds)

    async def fail() -> None:
        with stages.timing("commit"):
            await clock.sleep(5)
            raise LookupError

    async def main() -> None:
        await asyncio.gather(plan(1), plan(2))
        with pytest.raises(LookupError):
            await fail()

    loop.run(main())
    loop.bury()
    assert (stages.times["plan"].count, stages.times["plan"].seconds) == (2, 3)
    assert (stages.times["commit"].count, stages.times["commit"].seconds) == (1, 5)
    assert stages.times["tasks"].count == 0
