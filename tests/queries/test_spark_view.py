"""The view on real Spark: table and tail as one, in both formats."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from catena.queries.spark import fresh_view
from tests.sparks import LOCAL, Sparks
from tests.tables.world import opened_world

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
