"""What tasks do for tables, by their name; all other names are those of the pipeline.

As all tasks, one may be done more than once, and die at any byte: its files have names of their own, and nothing counts
before the driver has committed them.
"""

from __future__ import annotations

from catena.pipeline import tasks
from catena.pipeline.tasks import TaskContext

ROWS, REWRITE = "table-rows", "table-rewrite"


async def run_task(name: str, context: TaskContext, plan: bytes) -> bytes:
    match name:
        case "table-rows":
            from catena.tables.tasks import rows

            return await rows.run(context, plan)
        case "table-rewrite":
            from catena.tables.tasks import rewrite

            return await rewrite.run(context, plan)
        case _:
            return await tasks.run_task(name, context, plan)
