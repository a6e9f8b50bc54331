from __future__ import annotations

import msgspec
import pytest

from catena.errors import OutcomeUnknown, Rejected, StoreUnavailable
from catena.meta import keys
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks import TaskContext, run_task
from catena.pipeline.tasks.deleting import DeletingPlan
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyObjects

BLOBS = tuple(keys.wal_blob(digit * 32) for digit in "abc")


async def filled(*others: str) -> MemoryObjects:
    objects = MemoryObjects(SystemClock())
    for key in (*BLOBS, *others):
        await objects.put(key, [b""])
    return objects


async def delete(objects: ObjectStore, *names: str) -> None:
    counted = CountedObjects(objects, SystemClock())
    context = TaskContext(counted, SystemClock(), SystemEntropy(), counted)
    await run_task("deleting", context, msgspec.json.encode(DeletingPlan(names)))
    assert counted.snapshot()["delete"].requests == 1


async def test_all_at_once_and_any_number_of_times() -> None:
    objects = await filled()
    for _ in range(2):
        await delete(objects, *BLOBS[:2])
        assert [info.key async for info in objects.list("")] == [BLOBS[2]]


async def test_nothing_is_deleted_together_with_what_must_not_be() -> None:
    objects = await filled(keys.INCARNATION)
    with pytest.raises(Rejected, match=f"object {keys.INCARNATION} is none of those"):
        await delete(objects, *BLOBS, keys.INCARNATION)
    assert len([info async for info in objects.list("")]) == 4


async def test_an_unknown_outcome_may_be_tried_again() -> None:
    faults = Faults()
    objects = FaultyObjects(await filled(), faults)
    faults.at("delete objects", Fail(OutcomeUnknown("no answer"), applied=True))
    with pytest.raises(StoreUnavailable, match="no answer"):
        await delete(objects, *BLOBS)
    await delete(objects, *BLOBS)
