"""The view on real Spark: table and tail as one, in both formats."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from catena.errors import DataLoss
from catena.formats.record_batch import parse_header
from catena.loglets.base import Entry
from catena.queries.fresh import look
from catena.queries.spark import fresh_view
from catena.queries.spark.view import ReadFile, ReadSplit, read, reading_of
from tests.columns.nonsense import nonsense
from tests.sparks import LOCAL, Sparks
from tests.tables.world import World, opened_world

SCHEMA = '{"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}'


async def _fill(folder: Path, kind: str, typed: bool) -> None:
    async with opened_world(folder) as world:
        await world.create(2, format=kind, **({"value_format": "json", "value_schema": SCHEMA} if typed else {}))
        for number in range(4):
            await world.append([f'{{"a": {number}, "b": "x"}}', None], number % 2)
            if number == 1:
                await world.build()


@pytest.mark.parametrize(("kind", "typed"), [("delta", True), ("iceberg", False)])
def test_each_record_is_there_once(sparks: Sparks, tmp_path: Path, kind: str, typed: bool) -> None:
    spark = sparks.get(LOCAL)
    asyncio.run(_fill(tmp_path, kind, typed))
    frame = fresh_view(spark, "orders", data=str(tmp_path))
    assert frame.columns == ["_catena", "key", *(["a", "b"] if typed else ["value"]), "day"]
    places = sorted((row.partition, row.offset) for row in frame.select("_catena.*").collect())
    assert places == [(partition, offset) for partition in (0, 1) for offset in range(4)]
    value = "a" if typed else "cast(get_json_object(cast(value as string), '$.a') as int)"
    found = spark.sql(
        f"select {value} as v, cast(day as string) as day from orders where {value} is not null order by v"
    )
    assert [tuple(row) for row in found.collect()] == [(number, "2023-11-14") for number in range(4)]
    asyncio.run(_append(tmp_path))
    assert spark.sql("select * from orders").count() == 8, "a view is of its moment"
    assert fresh_view(spark, "orders", data=str(tmp_path), name="now").count() == 9


async def _append(folder: Path) -> None:
    async with opened_world(folder) as world:
        await world.append(["{}"])


def test_an_empty_topic(sparks: Sparks, tmp_path: Path) -> None:
    async def create() -> None:
        async with opened_world(tmp_path) as world:
            await world.create()

    asyncio.run(create())
    assert fresh_view(sparks.get(LOCAL), "orders", data=str(tmp_path)).collect() == []


async def _poison(world: World) -> None:
    """A batch that a broken producer has sent: offsets 1 to 3, between others."""
    await world.append(["a"])
    data = nonsense(3)
    await world.log.node.open_log(await world.topic(), 0).append(Entry(parse_header(data), data))
    await world.append(["b"])


@pytest.mark.long
def test_a_batch_that_can_not_be_decoded(sparks: Sparks, tmp_path: Path) -> None:
    async def fill() -> None:
        async with opened_world(tmp_path) as world:
            await world.create()
            await _poison(world)

    asyncio.run(fill())
    spark = sparks.get(LOCAL)
    with pytest.raises(Exception, match="topic orders, partition 0, the batch at offset 1, object "):
        fresh_view(spark, "orders", data=str(tmp_path)).collect()
    frame = fresh_view(spark, "orders", data=str(tmp_path), skip_undecodable=True)
    assert sorted(row.offset for row in frame.select("_catena.offset").collect()) == [0, 4]
    assert frame.count() == 2


async def test_what_is_left_out_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened_world(tmp_path) as world:
        await world.create()
        await _poison(world)
        driver = world.driver()
        fresh = await look(driver.node, driver.opener, await world.topic())
        reading = reading_of(world.settings, fresh, skip_undecodable=True)
        (split,) = fresh.splits
        rows = [batch.num_rows async for batch in read(driver.objects, reading, ReadSplit(split))]
    assert sum(rows) == 2
    assert "partition 0, the batch at offset 1" in caplog.text
    assert "its offsets, up to 3, are left out" in caplog.text


async def test_what_is_gone_says_what_to_do(tmp_path: Path) -> None:
    async with opened_world(tmp_path) as world:
        await world.create()
        await world.append(["a"])
        await world.build()
        await world.append(["b"])
        driver = world.driver()
        fresh = await look(driver.node, driver.opener, await world.topic())
        reading = reading_of(world.settings, fresh)
        (file,), (split,) = fresh.files, fresh.splits
        key = f"{fresh.prefix}/{file.path}"
        await driver.objects.delete([key, split.extents[0].key])
        for plan in (ReadFile(key, file.day), ReadSplit(split)):
            with pytest.raises(DataLoss, match=r"does not exist; .*: make the view again"):
                await anext(read(driver.objects, reading, plan))
