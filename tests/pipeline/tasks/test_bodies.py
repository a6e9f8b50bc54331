from __future__ import annotations

import pytest

from catena.errors import Corrupt, ObjectMissing
from catena.formats.record_batch import split_batches
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks.bodies import read_bodies
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import Links
from tests.formats.batches import batch
from tests.loglets.segments import SegmentedLog


@pytest.mark.parametrize(("max_bytes", "reads"), [(1, 10), (60_000, 5), (1 << 30, 1)])
async def test_whole_batches_so_many_bytes_at_a_time(max_bytes: int, reads: int) -> None:
    objects = CountedObjects(MemoryObjects(SystemClock()), SystemClock())
    info = await SegmentedLog(objects, Links(), base=7, interval_bytes=20_000).add([batch(2, 20_000)] * 10)
    found = [each async for each in read_bodies(objects, info, max_bytes)]
    assert len(found) == reads
    assert objects.snapshot()["range_get"].requests == 1 + reads
    offset, position = 7, info.body_at
    for start, at, body in found:
        assert (start, at) == (offset, position)
        offset += sum(header.count for header, _ in split_batches(body))
        position += len(body)
    assert (offset, position) == (info.end, info.index_at)


async def test_an_index_that_is_damaged_stops_it() -> None:
    objects = MemoryObjects(SystemClock())
    info = await SegmentedLog(objects, Links()).add([batch(2)])
    data = bytearray((await objects.get(info.key)).data)
    data[info.index_at] ^= 1
    await objects.put(info.key, [bytes(data)])
    with pytest.raises(Corrupt, match=f"byte {info.index_at} of object {info.key}"):
        _ = [each async for each in read_bodies(objects, info)]
    await objects.delete([info.key])
    with pytest.raises(ObjectMissing):
        _ = [each async for each in read_bodies(objects, info)]
