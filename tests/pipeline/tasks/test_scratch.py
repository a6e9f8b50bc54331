from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.columns.last_of_keys import LastOfKeys
from catena.errors import Corrupt
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks.compact_plans import OfJob, with_bytes
from catena.pipeline.tasks.scratch import pack_keys, pack_offsets, read_parts, unpack_keys, unpack_offsets, write_parts
from catena.runtime import SystemClock
from catena.types import TopicId

JOB = OfJob(topic="orders", topic_id=TopicId("a" * 32), partition=3, job="b" * 32)
KEY = JOB.scratch("a")
words = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(words, words, words)))
def test_keys_round_trip(rows: list[tuple[int, int, int]]) -> None:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    packed = pack_keys(LastOfKeys(*(np.array(column, np.uint64) for column in columns)))
    assert len(packed) == 24 * len(rows)
    found = unpack_keys(packed)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == rows


@given(st.lists(st.lists(st.integers(0, 2**62))))
def test_offsets_are_in_order_whoever_wrote_them(parts: list[list[int]]) -> None:
    packed = [pack_offsets(np.array(part, np.int64)) for part in parts]
    assert unpack_offsets(packed).tolist() == sorted(offset for part in parts for offset in part)


async def test_parts_are_read_as_they_were_written() -> None:
    objects = MemoryObjects(SystemClock())
    told = await write_parts(objects, JOB, "a", [b"one", b"", b"three"])
    assert [(part.at, part.size) for part in told] == [(0, 3), (3, 0), (3, 5)]
    assert [bytes(body) for body in await read_parts(objects, JOB, with_bytes(told)[::-1])] == [b"three", b"one"]
    assert await write_parts(objects, JOB, "a", [b"one", b"", b"three"]) == told, "a try of its own came first"


async def test_nothing_is_written_of_nothing() -> None:
    objects = MemoryObjects(SystemClock())
    told = await write_parts(objects, JOB, "a", [b"", b""])
    assert (len(told), told.is_empty, with_bytes(told)) == (2, True, ())
    assert [info async for info in objects.list("")] == []


async def test_a_changed_byte_is_found() -> None:
    objects = MemoryObjects(SystemClock())
    told = list(await write_parts(objects, JOB, "a", [b"one", b"three"]))
    await objects.put(KEY, [b"onethrEe"])
    assert [bytes(body) for body in await read_parts(objects, JOB, told[:1])] == [b"one"]
    with pytest.raises(Corrupt, match=f"object {KEY}, byte 3: 5 bytes of scratch have changed"):
        await read_parts(objects, JOB, told)
