"""Ranges of a log as rows: all compressions, in order, with what does not fit left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.queries.fresh import look
from catena.queries.rows import tail_rows
from tests.tables.world import World, opened_world

SCHEMA = '{"properties": {"a": {"type": "integer"}}}'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened_world(tmp_path) as opened:
        yield opened


async def test_rows_are_those_that_the_table_would_have(world: World, tmp_path: Path) -> None:
    await world.create(2, value_format="json", value_schema=SCHEMA)
    await world.append(['{"a": 1}', "bad", None], 0)
    await world.append(['{"a": 2}'], 1)
    driver = world.driver()
    fresh = await look(driver.node, driver.opener, await world.topic())
    rows, left_out = await tail_rows(driver.objects, fresh, tmp_path / "rows")
    assert (rows.schema, left_out) == (fresh.schema, 1)
    assert rows["a"].to_pylist() == [1, None, 2]
    assert [(each["partition"], each["offset"]) for each in rows["_catena"].to_pylist()] == [(0, 0), (0, 2), (1, 0)]
    await world.build()
    stored = (await world.rows()).drop_columns(["day"])
    assert stored == rows.drop_columns(["day"]).cast(stored.schema)
