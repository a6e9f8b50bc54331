"""Tasks on Spark of which one stays where it is once its work is written, so that somebody can kill what it runs in."""

from __future__ import annotations

import os
import signal

import msgspec

from catena.errors import Conflict
from catena.pipeline.tasks import TaskContext, run_task
from catena.pipeline.tasks.segments import SegmentsPlan
from catena.types import ABSENT
from tests.pipeline.deeds import POLL_S

STAYS = "stays"
"""An object that says which process it is."""
DEADLY = 3
"""A partition."""


async def stay_once(name: str, context: TaskContext, plan: bytes) -> bytes:
    """The first task writes its segments and does not answer, until it is killed. All others work as ever."""
    result = await run_task(name, context, plan)
    try:
        await context.objects.put(STAYS, [str(os.getpid()).encode()], ABSENT)
    except Conflict:
        return result
    while True:
        await context.clock.sleep(POLL_S)


async def die_of_one(name: str, context: TaskContext, plan: bytes) -> bytes:
    """One partition kills whoever works on it, each time."""
    if any(each.partition == DEADLY for each in msgspec.json.decode(plan, type=SegmentsPlan).segments):
        os.kill(os.getpid(), signal.SIGKILL)
    return await run_task(name, context, plan)
