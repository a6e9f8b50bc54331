"""The rest of a log as rows: those that the table would have, in order, with what does not fit left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from catena.errors import Corrupt, DataLoss
from catena.formats.record_batch import parse_header
from catena.loglets.base import Entry
from catena.meta import keys
from catena.queries.fresh import look
from catena.queries.pieces import PieceReader
from catena.queries.rows import TailRows
from catena.runtime import Disk
from tests.columns.nonsense import Fault, nonsense
from tests.tables.world import World, opened_world

SCHEMA = '{"properties": {"a": {"type": "integer"}}}'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened_world(tmp_path) as opened:
        yield opened


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    disk = Disk(1)
    yield disk
    disk.close()


async def tail_of(world: World, skips: bool = False) -> TailRows:
    driver, topic = world.driver(), await world.topic()
    fresh = await look(driver.node, driver.opener, topic)
    return TailRows(fresh, PieceReader(driver.node, driver.objects, topic), skips)


async def read(disk: Disk, tail: TailRows, **options: Any) -> pa.Table:
    return await disk.run(lambda: tail.scanner(**options).to_reader().read_all())


async def test_rows_are_those_that_the_table_would_have(world: World, disk: Disk) -> None:
    await world.create(2, value_format="json", value_schema=SCHEMA)
    await world.append(['{"a": 1}', "bad", None], 0)
    await world.append(['{"a": 2}'], 1)
    tail = await tail_of(world)
    rows = await read(disk, tail)
    for _ in range(2):
        assert await read(disk, tail) == rows
        assert (rows.schema, tail.left_out) == (tail.schema, 1)
    assert rows["a"].to_pylist() == [1, None, 2]
    assert [(each["partition"], each["offset"]) for each in rows["_catena"].to_pylist()] == [(0, 0), (0, 2), (1, 0)]
    await world.build()
    stored = (await world.rows()).drop_columns(["day"])
    assert stored == rows.drop_columns(["day"]).cast(stored.schema)


async def test_raw_rows_have_what_is_asked_for(world: World, disk: Disk) -> None:
    await world.create()
    await world.append([b"1", None, b"3"])
    tail = await tail_of(world)
    whole = await read(disk, tail)
    await world.build()
    stored = (await world.rows()).drop_columns(["day"])
    assert stored == whole.drop_columns(["day"]).cast(stored.schema)
    for names in (["value"], ["day", "key"], ["_catena"], ["key"], ["value", "_catena"]):
        assert await read(disk, tail, columns=names) == whole.select(names)
    empty = tail.scanner(columns=[]).to_reader()
    assert await disk.run(lambda: [batch.num_rows for batch in empty]) == [3]
    third = await read(disk, tail, columns=["value"], filter=ds.field("_catena", "offset") == 2)
    assert third["value"].to_pylist() == [b"3"]
    none = await read(disk, tail, columns=["key"], filter=ds.field("value").is_null())
    assert none.num_rows == 1


async def test_pieces_that_a_condition_rules_out(world: World) -> None:
    await world.create(3)
    for partition in range(3):
        await world.append([b"1", b"2"], partition)
        await world.append([b"3"], partition)
    tail = await tail_of(world)
    partition, offset = ds.field("_catena", "partition"), ds.field("_catena", "offset")
    assert tail.chosen(None) == [0, 1, 2]
    assert tail.chosen(partition == 1) == [1]
    assert tail.chosen((partition >= 1) & (offset > 2)) == []
    assert tail.chosen((partition == 0) | (partition == 2)) == [0, 2]
    assert tail.chosen(offset == 2) == [0, 1, 2]
    assert tail.chosen(ds.field("key") == b"k") == [0, 1, 2]


async def test_what_ends_a_scan_is_kept(world: World, disk: Disk) -> None:
    await world.create()
    await world.append([b"1"])
    tail = await tail_of(world)
    objects = world.log.node.objects
    await objects.delete([info.key async for info in objects.list(keys.WAL_BLOBS)])
    with pytest.raises(DataLoss):
        await read(disk, tail)
    assert isinstance(tail.trouble, DataLoss)


@pytest.mark.parametrize("configs", [{}, {"value_format": "json", "value_schema": SCHEMA}], ids=["raw", "json"])
async def test_a_batch_that_can_not_be_decoded(world: World, disk: Disk, configs: dict[str, str]) -> None:
    """It is an error, unless it is to be left out; once the table has it as a dead letter, the tail begins behind."""
    await world.create(1, **configs)
    await world.append(['{"a": 1}'])
    data = nonsense(2, Fault.CUT)
    await world.log.node.open_log(await world.topic(), 0).append(Entry(parse_header(data), data))
    await world.append(['{"a": 2}'])
    strict = await tail_of(world)
    with pytest.raises(Corrupt, match="topic orders, partition 0, the batch at offset 1, object "):
        await read(disk, strict)
    assert isinstance(strict.trouble, Corrupt)
    lenient = await tail_of(world, skips=True)
    for names in (None, ["_catena"], ["day"]):
        assert (await read(disk, lenient, columns=names)).num_rows == 2
        assert (lenient.opaque, lenient.left_out) == (1, 0)
    report = await world.build()
    assert (report.error, report.opaque_batches) == ("", 1)
    assert (await read(disk, await tail_of(world))).num_rows == 0
