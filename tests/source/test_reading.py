"""What a task makes of its split: the rows of the log, or an error that says where the bytes are wrong."""

from __future__ import annotations

import asyncio
import datetime
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catena.columns.schema import COLUMNS
from catena.errors import Corrupt, DataLoss, ObjectMissing
from catena.formats import bytes_batch
from catena.formats.wal_blob import BYTES_BATCH_V1
from catena.loglets.base import Extent
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock
from catena.source import reading
from catena.source.reading import GROUPS_AHEAD, fetch_extents, group, read_ahead, read_split
from catena.source.splitting import Split
from catena.testing.contracts.loglet import make_entry
from catena.types import Buffer, TopicId
from tests.source.world import Row, World, fill, open_world, rows_in, tier

ID = TopicId("0" * 32)


async def rows_of(world: World, splits: Sequence[Split], columns: Sequence[str] = COLUMNS) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for split in splits:
        bodies = {extent: (await fetch_extents(world.objects, [extent]))[0] for extent in split.extents}
        for batch in read_split(split, columns, functools.partial(_taken, bodies)):
            rows += batch.to_pylist()
    return rows


def _taken(bodies: Mapping[Extent, Buffer], extents: Sequence[Extent]) -> Sequence[Buffer]:
    return [bodies[each] for each in extents]


def as_row(row: dict[str, Any]) -> Row:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    headers = [(each["key"], each["value"]) for each in row["headers"] or []]
    time_ms = (row["timestamp"] - epoch) // datetime.timedelta(milliseconds=1)
    return Row(row["partition"], row["offset"], row["key"], row["value"], time_ms, headers)


async def test_rows_are_those_of_the_log(tmp_path: Path) -> None:
    await fill(tmp_path)
    await tier(tmp_path)
    await fill(tmp_path, start=50)
    expected = await rows_in(tmp_path)
    assert len(expected) == 300
    async with open_world(tmp_path) as world:
        for options in ({}, {"minPartitions": "17"}, {"maxRecordsPerPartition": "9"}):
            splits = await world.batch(subscribe="orders", **options).plan_batch()
            assert [as_row(row) for row in await rows_of(world, splits)] == expected
        splits = await world.batch(
            subscribe="orders",
            startingOffsets='{"orders": {"0": 7, "1": -2, "2": 99}}',
            endingOffsets='{"orders": {"0": 58, "1": 3, "2": -1}}',
        ).plan_batch()
        wanted = {0: range(7, 58), 1: range(3), 2: range(99, 100)}
        assert [as_row(row) for row in await rows_of(world, splits)] == [
            row for row in expected if row.offset in wanted[row.partition]
        ]
        narrow = await rows_of(world, splits, ["offset", "partition"])
        assert [list(row) for row in narrow[:1]] == [["offset", "partition"]]
        assert len(narrow) == 55


async def test_a_task_downloads_a_bounded_amount_at_once() -> None:
    extents = [Extent(number, number + 1, "a", number, 10) for number in range(7)]
    assert [len(each) for each in group(extents, 35, 10)] == [3, 3, 1]
    assert [len(each) for each in group(extents, 1000, 2)] == [2, 2, 2, 1]
    assert [len(each) for each in group(extents, 5, 10)] == [1] * 7
    whole = [extents[0], Extent(1, 2, "b"), extents[2]]
    assert [len(each) for each in group(whole, 35, 10)] == [1, 1, 1]
    assert list(group([])) == []


async def stored(*bodies: bytes, **changes: Any) -> tuple[Split, MemoryObjects]:
    """Each body in an object of its own, with two offsets."""
    objects = MemoryObjects(SystemClock())
    for number, body in enumerate(bodies):
        await objects.put(f"object-{number}", [body])
    extents = [
        msgspec.structs.replace(Extent(2 * number, 2 * number + 2, f"object-{number}", 0, len(body)), **changes)
        for number, body in enumerate(bodies)
    ]
    return Split("orders", ID, 3, 0, 2 * len(bodies), tuple(extents)), objects


async def values(split: Split, objects: MemoryObjects) -> list[bytes]:
    """As a task reads them: in a thread that has no event loop."""

    def fetch(extents: Sequence[Extent]) -> Sequence[Buffer]:
        return asyncio.run(fetch_extents(objects, extents))

    def read() -> list[bytes]:
        return [value for batch in read_split(split, ["value"], fetch) for value in batch["value"].to_pylist()]

    return await asyncio.to_thread(read)


async def test_old_data() -> None:
    """Whole objects, and an encoding that nothing writes any more."""
    body = bytes_batch.encode([b"a", b"b"])
    split, objects = await stored(body, body, length=None, encoding=BYTES_BATCH_V1, created_at_ms=5)
    assert await values(split, objects) == [b"a", b"b"] * 2
    split, objects = await stored(body, encoding="other")
    with pytest.raises(Corrupt, match=r"orders/3, object object-0, .* for offset 0: encoding 'other' is unknown"):
        await values(split, objects)


async def test_a_body_that_is_not_what_was_planned() -> None:
    good = bytes(make_entry("a", "b").data)
    split, objects = await stored(good, good)
    assert await values(split, objects) == [b"a", b"b"] * 2
    for bad, told in (
        (bytes(make_entry("a").data), "it ends at offset 3, and the plan says at 4"),
        (good[:30], "byte 0: 30 bytes are left, and a header has 61"),
        (good[:-1], "byte 0: a batch of .* can't be here"),
        (good + b"x", "bytes are left, and a header has 61"),
        (b"", "it ends at offset 2, and the plan says at 4"),
    ):
        split, objects = await stored(good, bad)
        with pytest.raises(Corrupt, match=f"orders/3, object object-1, the extent at byte 0 for offset 2: .*{told}"):
            await values(split, objects)


async def test_a_bit_that_has_flipped() -> None:
    good = bytearray(make_entry("a", "b").data)
    good[-1] ^= 1
    split, objects = await stored(bytes(good))
    with pytest.raises(Corrupt, match=r"topic orders, partition 3, the batch at offset 0, object object-0.*CRC"):
        await values(split, objects)


async def test_an_object_that_vacuum_has_collected() -> None:
    good = bytes(make_entry("a", "b").data)
    split, objects = await stored(good, good)
    await objects.delete(["object-1"])
    with pytest.raises(DataLoss, match=r"orders/3, offsets 0 to 3: object object-1 does not exist; vacuum") as raised:
        await values(split, objects)
    assert isinstance(raised.value.__cause__, ObjectMissing)


class Downloads:
    """Groups that were begun, in their order; none of them comes before it is asked for."""

    def __init__(self, objects: MemoryObjects) -> None:
        self._objects = objects
        self.begun: list[Waiting] = []

    def begin(self, extents: Sequence[Extent]) -> Future[Sequence[Buffer]]:
        self.begun.append(Waiting(self._objects, extents))
        return self.begun[-1]


class Waiting(Future[Sequence[Buffer]]):
    def __init__(self, objects: MemoryObjects, extents: Sequence[Extent]) -> None:
        super().__init__()
        self._work = fetch_extents(objects, extents)

    def result(self, timeout: float | None = None) -> Sequence[Buffer]:
        if not self.done():
            self.set_result(asyncio.run(self._work))
        return super().result(timeout)

    def cancel(self) -> bool:
        self._work.close()
        return super().cancel()


async def test_some_groups_are_under_way_while_one_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "AHEAD_EXTENTS", 2)
    split, objects = await stored(*[bytes(make_entry(f"{number}", "x").data) for number in range(20)])
    downloads = Downloads(objects)

    def read() -> list[bytes]:
        batches = read_ahead(split, ["value"], downloads.begin)
        return [value for batch in batches for value in batch["value"].to_pylist()]

    assert await asyncio.to_thread(read) == [value for number in range(20) for value in (b"%d" % number, b"x")]
    assert len(downloads.begun) == 10

    downloads = Downloads(objects)
    groups = reading._downloads_ahead(split.extents, downloads.begin)
    for number in range(3):
        extents, _ = next(groups)
        assert [each.offset for each in extents] == [4 * number, 4 * number + 2]
        assert len(downloads.begun) == number + 1 + GROUPS_AHEAD
    groups.close()  # type: ignore[attr-defined]
    assert [each.cancelled() for each in downloads.begun] == [False] * 3 + [True] * GROUPS_AHEAD
    for each in downloads.begun[:3]:
        each.cancel()


async def test_what_is_gone_ahead_is_told_when_it_is_reached() -> None:
    good = bytes(make_entry("a", "b").data)
    split, objects = await stored(good, good)
    await objects.delete(["object-1"])
    with pytest.raises(DataLoss, match=r"orders/3, offsets 0 to 3: object object-1 does not exist; .* load it again"):
        await asyncio.to_thread(lambda: list(read_ahead(split, ["value"], Downloads(objects).begin)))
