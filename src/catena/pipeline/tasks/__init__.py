"""What a task does, by its name: a plan in, a result out, both bytes; objects are read and written in between.

A task may be done more than once, by several workers at the same time, and die at any byte. So the objects that it
writes have names of their own, and nothing counts before the job has committed it.
"""

from __future__ import annotations

from catena.errors import ConfigError
from catena.pipeline.tasks.base import OpenObjects, RunTask, TaskContext

__all__ = ["OpenObjects", "RunTask", "TaskContext", "run_task"]


async def run_task(name: str, context: TaskContext, plan: bytes) -> bytes:
    match name:
        case "audit":
            from catena.pipeline.tasks import audit

            return await audit.run(context, plan)
        case "keys":
            from catena.pipeline.tasks import compacting

            return await compacting.run_keys(context, plan)
        case "survivors":
            from catena.pipeline.tasks import compacting

            return await compacting.run_survivors(context, plan)
        case "rewrite":
            from catena.pipeline.tasks import compacting

            return await compacting.run_rewrite(context, plan)
        case "probe":
            from catena.pipeline.tasks import probe

            return probe.run(context, plan)
        case "segments":
            from catena.pipeline.tasks import segments

            return await segments.run(context, plan)
        case "listing":
            from catena.pipeline.tasks import listing

            return await listing.run(context, plan)
        case "deleting":
            from catena.pipeline.tasks import deleting

            return await deleting.run(context, plan)
        case _:
            raise ConfigError(f"there is no task {name!r}: is this worker's version of Catena the driver's?")
