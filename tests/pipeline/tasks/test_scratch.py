from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.columns.last_of_keys import LastOfKeys
from catena.errors import Corrupt
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks.scratch import pack_keys, pack_offsets, read_parts, unpack_keys, unpack_offsets, write_parts
from catena.runtime import SystemClock

words = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(words, words, st.integers(0, 2**62), st.booleans())))
def test_keys_round_trip(rows: list[tuple[int, int, int, bool]]) -> None:
    high, low, offset, is_tombstone = zip(*rows, strict=True) if rows else ((), (), (), ())
    last = LastOfKeys(
        np.array(high, np.uint64),
        np.array(low, np.uint64),
        np.array(offset, np.int64),
        np.array(is_tombstone, np.bool_),
    )
    packed = pack_keys(last)
    assert len(packed) == 24 * len(rows)
    found = unpack_keys(packed)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == rows


@given(st.lists(st.lists(st.integers(0, 2**62))))
def test_offsets_are_in_order_whoever_wrote_them(parts: list[list[int]]) -> None:
    packed = [pack_offsets(np.array(part, np.int64)) for part in parts]
    assert unpack_offsets(packed).tolist() == sorted(offset for part in parts for offset in part)


async def test_parts_are_read_as_they_were_written() -> None:
    objects = MemoryObjects(SystemClock())
    told = await write_parts(objects, "a", [(1, b"one"), (0, b""), (2, b"three")])
    assert [(part.at, part.rows, part.size) for part in told] == [(0, 1, 3), (3, 0, 0), (3, 2, 5)]
    assert [bytes(body) for body in await read_parts(objects, told[::-1])] == [b"three", b"one"]
    assert await write_parts(objects, "a", [(1, b"one"), (0, b""), (2, b"three")]) == told, (
        "a try of its own came first"
    )


async def test_nothing_is_written_of_nothing() -> None:
    objects = MemoryObjects(SystemClock())
    told = await write_parts(objects, "a", [(0, b""), (0, b"")])
    assert await read_parts(objects, told) == []
    assert [info async for info in objects.list("")] == []


async def test_a_changed_byte_is_found() -> None:
    objects = MemoryObjects(SystemClock())
    told = await write_parts(objects, "a", [(1, b"one"), (2, b"three")])
    await objects.put("a", [b"onethrEe"])
    assert [bytes(body) for body in await read_parts(objects, told[:1])] == [b"one"]
    with pytest.raises(Corrupt, match="object a, byte 3: 5 bytes of scratch have changed"):
        await read_parts(objects, told)
