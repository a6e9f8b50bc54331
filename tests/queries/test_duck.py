"""SQL over topics: tables and tails as one, and what is said where a query is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from catena.errors import DataLoss, Rejected, UnknownTopic
from catena.jobs.querying import query
from catena.queries.duck import Answer, DuckQueries
from catena.queries.fresh import look
from tests.tables.world import World, opened_world

ONE = '{"properties": {"a": {"type": "integer"}}}'
TWO = '{"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened_world(tmp_path) as opened:
        yield opened


def _collect(answer: Answer) -> tuple[list[dict[str, Any]], list[str]]:
    return [row for batch in answer.batches for row in batch.to_pylist()], list(answer.warnings)


async def ask(world: World, sql: str) -> list[Any]:
    rows, warnings = await query(world.settings, sql, _collect)
    assert warnings == []
    return [row if len(row) > 1 else next(iter(row.values())) for row in rows]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
async def test_a_record_acked_just_now_is_there_once(world: World, kind: str) -> None:
    await world.create(2, format=kind)
    for number in range(4):
        await world.append([f"{number}", None], number % 2)
        assert await ask(world, "select count(*) from orders") == [2 * number + 2]
        found = await ask(world, "select cast(value as varchar) from orders where value is not null order by 1")
        assert found == [str(each) for each in range(number + 1)]
        if number % 2:
            await world.build()
            assert await ask(world, "select count(*) from orders") == [2 * number + 2]
    twice = "select a.day = b.day from orders a join orders b on a._catena = b._catena"
    assert await ask(world, twice) == [True] * 8
    of_day = "select distinct day::varchar, _catena.timestamp = timestamptz '2023-11-14 22:13:20+00' as at from orders"
    assert await ask(world, of_day) == [{'CAST("day" AS VARCHAR)': "2023-11-14", "at": True}]


async def test_values_with_fields_and_a_column_that_is_new(world: World) -> None:
    await world.create(value_format="json", value_schema=ONE)
    await world.append(['{"a": 1}', '{"a": 2}'])
    await world.build()
    await world.configure(value_schema=TWO)
    await world.append(['{"a": 3, "b": "x"}', "no json"])
    rows, warnings = await query(world.settings, "select a, b from orders order by a", _collect)
    assert rows == [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": 3, "b": "x"}]
    assert warnings == ["1 values of orders do not fit its columns, and are left out"]


async def test_several_topics_and_names_that_are_no_words(world: World) -> None:
    await world.create()
    await world.log.create_topic("other-topic.v1", 1)
    await world.append([b"1", b"2"])
    await world.log.append("other-topic.v1", b"2", partition=0)
    sql = 'select cast(a.value as varchar) from orders a join "other-topic.v1" b using (value)'
    assert await ask(world, sql) == ["2"]
    assert await ask(world, "with orders as (select 5 as x) select x from orders") == [5]
    assert await ask(world, "with more as (select 5 as x) select x from more") == [5]
    copy = (
        f"copy (select cast(value as varchar) from orders order by 1) to '{world.settings.data}/out.csv' (header false)"
    )
    await ask(world, copy)
    assert (Path(world.settings.data) / "out.csv").read_text() == "1\n2\n"


async def test_no_topics_at_all(world: World) -> None:
    await world.create()
    assert await ask(world, "select 1 + 1") == [2]
    assert await ask(world, "select count(*) from orders") == [0]


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("selekt 1", Rejected, "sql: Parser Error"),
        ("select nothing from orders", Rejected, "(?s)sql: Binder Error.*nothing"),
        ("select * from order_lines", UnknownTopic, "no topic 'order_lines'"),
        ("select cast(value as int) from orders", Rejected, "(?s)sql: Conversion Error"),
    ],
)
async def test_wrong_questions(world: World, sql: str, error: type[Exception], words: str) -> None:
    await world.create()
    await world.append(["text"])
    with pytest.raises(error, match=words):
        await ask(world, sql)


async def test_names_that_differ_in_case_only(world: World) -> None:
    await world.create()
    await world.log.create_topic("Orders", 1)
    await world.append([b"1", b"2"])
    await world.log.append("Orders", b"2", partition=0)
    assert await ask(world, 'select count(*) from "Orders"') == [1]
    assert await ask(world, "select count(*) from orders") == [2]
    with pytest.raises(Rejected, match="differ in case only, and can't be in one query"):
        await ask(world, 'select * from orders, "Orders"')
    with pytest.raises(Rejected, match="ORDERS may be any of the topics Orders, orders"):
        await ask(world, "select * from ORDERS")
    await world.log.delete_topic("Orders")
    assert await ask(world, "select count(*) from ORDERS") == [2]


async def test_objects_that_vacuum_takes_before_they_are_read(world: World) -> None:
    """What they held has moved, and is found where it is now; where it is nowhere, that is said."""
    await world.create()
    await world.append([b"1"])
    deleted = []
    topic = await world.topic()
    driver = world.driver()
    queries = DuckQueries(driver.node, driver.objects, driver.opener.storage, driver.opener)
    for split in (await look(driver.node, driver.opener, topic)).splits:
        for extent in split.extents:
            deleted.append(extent.key)
    await driver.objects.delete(deleted)
    with pytest.raises(DataLoss, match="vacuum collects what has moved meanwhile: ask again"):
        await queries._read_tail(topic, Path(world.settings.data) / "tail.arrow")
