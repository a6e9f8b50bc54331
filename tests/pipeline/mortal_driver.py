"""A driver in a process of its own, which is killed or stopped at a step: `DATA STEP kill|stop before|after`.

Its tasks run in it, so that a step is a step of the whole job. It prints how many steps it has taken when it ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from catena import jobs
from catena.config import load
from catena.objects.counted import CountedObjects
from catena.pipeline.tasks import TaskContext
from catena.pipeline.tier_pass import TierPass
from catena.pipeline.work import InlineWork
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects
from catena.virtual_log.chain_store import ChainStore
from tests.pipeline.drivers import SMALL

T = TypeVar("T")


class SignalAt(Faults):
    """Steps that only read are not counted."""

    def __init__(self, at: int, number: signal.Signals, applied: bool) -> None:
        super().__init__()
        self._at, self._number, self._applied = at, number, applied
        self.steps = 0

    async def take(self, step: str, apply: Callable[[], Awaitable[T]]) -> T:
        if not any(word in ("put", "delete", "delete_range") for word in step.split()):
            return await apply()
        self.steps += 1
        is_it = self.steps == self._at
        if is_it and not self._applied:
            os.kill(os.getpid(), self._number)
        result = await apply()
        if is_it and self._applied:
            os.kill(os.getpid(), self._number)
        return result


async def main(data: str, at: int, number: signal.Signals, applied: bool) -> None:
    clock, entropy = SystemClock(), SystemEntropy()
    faults = SignalAt(at, number, applied)
    async with jobs.open_site(load(data=data), clock, entropy) as (site, _):
        meta = FaultyMeta(site.meta, faults)
        objects = CountedObjects(FaultyObjects(site.objects, faults), clock)
        site = site._replace(meta=meta, objects=objects, chains=ChainStore(meta, clock, entropy))
        work = InlineWork(TaskContext(objects, clock, entropy, objects), at_once=1)
        places = await jobs.find_places(site, jobs.EVERYTHING)
        (report,) = await TierPass(site, work, SMALL, jobs.MAX_OFFSET).run(places)
        print(faults.steps, report.outcome, flush=True)


if __name__ == "__main__":
    _, data, at, how, when = sys.argv
    asyncio.run(main(data, int(at), signal.SIGKILL if how == "kill" else signal.SIGSTOP, when == "after"))
