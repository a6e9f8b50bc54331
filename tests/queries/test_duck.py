"""SQL over topics: tables and tails as one, and what is said where a query is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from catena.errors import Corrupt, DataLoss, Rejected, UnknownTopic
from catena.formats.record_batch import parse_header
from catena.jobs.querying import query
from catena.loglets.base import Entry
from catena.queries import duck
from catena.queries.duck import Answer, DuckQueries
from catena.queries.fresh import look
from catena.queries.pieces import PieceReader
from catena.runtime import Disk
from catena.source.reading import Aside
from catena.source.splitting import Split
from catena.testing.faults import Faults, Stall
from tests.columns.nonsense import nonsense
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
    assert warnings == ["values of orders that do not fit its columns and are left out: 1"]


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


@pytest.mark.parametrize("is_typed", [False, True])
async def test_only_what_is_asked_for_is_read(world: World, is_typed: bool) -> None:
    """Pieces that a condition rules out are not downloaded; of raw values, columns that nobody asks for not decoded."""
    await world.create(3, **({"value_format": "json", "value_schema": ONE} if is_typed else {}))
    for partition in range(3):
        for number in range(4):
            await world.append([f'{{"a": {number}}}'], partition)
    driver = world.driver()
    read: list[tuple[int, int]] = []

    class Counting(PieceReader):
        def read(self, piece: Split, columns: Sequence[str], aside: Aside | None = None) -> Iterator[Any]:
            read.append((piece.partition, len(columns)))
            return super().read(piece, columns, aside)

    async def asked(sql: str) -> list[dict[str, Any]]:
        read.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(duck, "PieceReader", Counting)
            queries = DuckQueries(driver.node, driver.objects, driver.opener.storage, driver.opener, disk)
            with queries.connect(Path(world.settings.data)) as connection:
                rows, _ = await queries.run(connection, sql, _collect)
        return rows

    disk = Disk(2)
    try:
        assert await asked("select count(*) as n from orders") == [{"n": 12}]
        assert read == [(number, 7 if is_typed else 5) for number in range(3)]
        where = 'where _catena.partition = 1 and _catena."offset" >= 2'
        assert await asked(f"select count(*) as n from orders {where}") == [{"n": 2}]
        assert read == [(1, 7 if is_typed else 5)]
        assert await asked(f'select count(*) as n from orders {where} and _catena."offset" < 2') == [{"n": 0}]
        assert read == []
        assert await asked("select distinct key from orders where _catena.partition > 1") == [{"key": b"k"}]
        assert read == [(2, 7 if is_typed else 6)]
        assert await asked("select distinct day::varchar as d, key from orders where key = 'k'::blob") == [
            {"d": "2023-11-14", "key": b"k"}
        ]
        assert read == [(number, 7 if is_typed else 2) for number in range(3)]
        joined = "select count(*) as n from orders x join orders y on x._catena = y._catena"
        assert await asked(joined) == [{"n": 12}]
    finally:
        disk.close()


async def test_conditions_on_values_and_none(world: World) -> None:
    await world.create(2)
    await world.append([b"1", b"2", None], 0)
    await world.append([b"2"], 1)
    assert await ask(world, "select count(*) from orders where value = '2'::blob") == [2]
    assert await ask(world, "select _catena.partition from orders where value is null") == [0]
    both = "key = 'k'::blob and value >= '1'::blob"
    assert await ask(world, f'select sum(_catena."offset") from orders where {both}') == [1]
    assert await ask(world, "select 1 from orders limit 1") == [1]
    await world.configure(value_format="json", value_schema=ONE)
    await world.append(['{"a": 5}', '{"a": null}'], 1)
    assert await ask_with_warnings(world, "select count(*) from orders where a > 1") == [1]
    assert await ask_with_warnings(world, "select count(*) from orders where a is null") == [2]


async def ask_with_warnings(world: World, sql: str) -> list[Any]:
    rows, warnings = await query(world.settings, sql, _collect)
    assert warnings == ["values of orders that do not fit its columns and are left out: 3"]
    return [next(iter(row.values())) for row in rows]


async def test_a_batch_that_can_not_be_decoded(world: World) -> None:
    await world.create()
    await world.configure(enable="false")
    await world.append([b"1"])
    data = nonsense(3)
    await world.log.node.open_log(await world.topic(), 0).append(Entry(parse_header(data), data))
    for sql in ("select count(*) from orders", "select max(value) from orders"):
        with pytest.raises(Corrupt, match="topic orders, partition 0, the batch at offset 1, object "):
            await ask(world, sql)
    rows, warnings = await query(world.settings, "select count(*) as n from orders", _collect, skips=True)
    assert (rows, warnings) == ([{"n": 1}], ["batches of orders that can't be decoded and are left out: 1"])


async def test_objects_that_vacuum_takes_before_they_are_read(world: World) -> None:
    """What they held has moved, and is found where it is now; where it is nowhere, that is said."""
    await world.create()
    await world.append([b"1"])
    driver = world.driver()
    found = await look(driver.node, driver.opener, await world.topic())
    await driver.objects.delete([extent.key for split in found.splits for extent in split.extents])
    with pytest.raises(DataLoss, match="vacuum collects what has moved meanwhile: ask again"):
        await ask(world, "select value from orders")


async def test_a_question_that_nobody_waits_for(world: World) -> None:
    """DuckDB's threads wait for a download, and are let go."""
    await world.create()
    await world.append([b"1"])
    faults = Faults()
    asleep = faults.at("blob get_ranges", Stall())
    driver = world.driver(faults)
    disk = Disk(2)
    queries = DuckQueries(driver.node, driver.objects, driver.opener.storage, driver.opener, disk)
    try:
        with queries.connect(Path(world.settings.data)) as connection:
            asking = asyncio.create_task(queries.run(connection, "select value from orders", _collect))
            await asleep.reached.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            asleep.let_go()
            assert connection.execute("select 1").fetchall() == [(1,)]
    finally:
        disk.close()
