"""The task that deletes objects. What is gone already is fine, so it may be done any number of times."""

from __future__ import annotations

import msgspec

from catena.errors import OutcomeUnknown, Rejected, StoreUnavailable
from catena.pipeline.tasks.base import TaskContext
from catena.pipeline.tasks.listing import kind_of


class DeletingPlan(msgspec.Struct, frozen=True):
    keys: tuple[str, ...]


async def run(context: TaskContext, plan: bytes) -> bytes:
    await delete_objects(context, msgspec.json.decode(plan, type=DeletingPlan))
    return b""


async def delete_objects(context: TaskContext, plan: DeletingPlan) -> None:
    for key in plan.keys:
        if kind_of(key) is None:
            raise Rejected(f"object {key} is none of those that vacuum may delete")
    try:
        await context.objects.delete(plan.keys)
    except OutcomeUnknown as error:
        raise StoreUnavailable(f"not all may be deleted yet: {error}") from error
