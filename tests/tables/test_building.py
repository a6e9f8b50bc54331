"""Records come into a table, each once: whatever dies when, and whoever else is at it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from catena.errors import ObjectMissing, OutcomeUnknown, StaleView, StoreUnavailable
from catena.runtime import Disk
from catena.tables.columns import RAW, VALUE_FIELD, evolved
from catena.tables.committer import OpenTable
from catena.tables.settings import TableFormat
from catena.tables.storage import TableOpener
from catena.testing.faults import Fail, Faults, Stall
from catena.virtual_log.topics import TopicRecord
from tests.pipeline.drivers import Steps
from tests.tables.world import HOUR_MS, START_MS, TOPIC, Row, World


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows_of(*counts: int) -> list[Row]:
    """All of partitions that have so many records."""
    return [Row(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


async def test_raw(world: World, kind: str) -> None:
    await world.create(2, format=kind)
    await world.append(["a", None, "c"])
    await world.append(["x"], partition=1, at_ms=START_MS + 2 * HOUR_MS)
    report = await world.build()
    assert (report.outcome, report.rows, report.commits, report.error) == ("committed", 4, 1, "")
    rows = await world.rows()
    assert set(rows.schema.names) == {"_catena", "key", "value", "day"}
    assert rows["value"].to_pylist() == [b"a", None, b"c", b"x"]
    assert rows["key"].to_pylist() == [b"k"] * 4
    assert [str(day) for day in rows["day"].to_pylist()] == ["2023-11-14"] * 3 + ["2023-11-15"]
    first = rows["_catena"][0].as_py()
    assert first["timestamp"].timestamp() * 1000 == START_MS
    assert {name: first[name] for name in ("partition", "offset", "timestamp_type", "headers")} == {
        "partition": 0,
        "offset": 0,
        "timestamp_type": 0,
        "headers": [{"key": "h", "value": b"1"}],
    }
    assert (await world.build()).outcome == "idle"


async def test_in_many_commits_and_many_runs(world: World, kind: str) -> None:
    await world.create(3, format=kind)
    for partition, count in enumerate((25, 3, 0)):
        for number in range(count):
            await world.append([str(number)], partition)
    report = await world.build(world.driver(max_records=10))
    assert (report.commits, report.rows, report.records_behind) == (3, 28, 0)
    await world.append(["more"], 2)
    assert (await world.build(dry_run=True)).records_behind == 1
    assert (await world.build()).rows == 1
    assert await world.offsets() == rows_of(25, 3, 1)


async def test_a_plan_changes_nothing(world: World, kind: str) -> None:
    await world.create(format=kind)
    await world.append(["a"])
    report = await world.build(dry_run=True)
    assert (report.outcome, report.records_behind, report.rows) == ("planned", 1, 0)
    assert await (await world.opened()).table.load() is None


async def test_not_before_it_is_due(world: World) -> None:
    await world.create(commit_interval_ms="3600000")
    await world.append(["a"])
    assert (await world.build(only_if_due=True)).outcome == "waiting"
    await world.configure(commit_interval_ms="1")
    report = await world.build(only_if_due=True)
    while report.outcome == "waiting":
        report = await world.build(only_if_due=True)
    assert (report.outcome, report.freshness_ms >= 1) == ("committed", True)


async def test_a_look_at_what_has_everything_opens_no_table(world: World) -> None:
    await world.create(2, commit_interval_ms="1")
    await world.append(["a"])
    driver = world.driver()._replace(progress={})
    while (report := await world.build(driver, only_if_due=True)).outcome == "waiting":
        pass
    assert report.rows == 1
    topic = await world.topic()
    seen = driver.progress
    assert seen == {topic.topic_id: {0: 1}}
    faults = Faults()
    blind = world.driver(faults)._replace(progress=seen)
    assert (await world.build(blind, only_if_due=True)).outcome == "idle"
    await world.configure(commit_interval_ms="3600000")
    await world.append(["b"], 1)
    waiting = await world.build(blind, only_if_due=True)
    assert (waiting.outcome, waiting.records_behind) == ("waiting", 1)
    assert faults.taken["load"] == 0
    await world.configure(commit_interval_ms="1")
    while (report := await world.build(blind, only_if_due=True)).outcome == "waiting":
        pass
    assert (report.rows, await world.offsets()) == (1, [Row(0, 0), Row(1, 0)])


async def test_another_format_of_a_quiet_topic_is_not_overlooked(world: World) -> None:
    await world.create(commit_interval_ms="1")
    await world.append(["a"])
    driver = world.driver()._replace(progress={})
    for kind in ("delta", "iceberg"):
        await world.configure(format=kind)
        while (report := await world.build(driver, only_if_due=True)).outcome == "waiting":
            pass
        assert (report.outcome, report.rows, report.format) == ("committed", 1, kind)


async def test_objects_that_vacuum_took_are_planned_anew(world: World) -> None:
    await world.create()
    await world.append(["a"])
    faults = Faults()
    faults.at("blob get_ranges", Fail(ObjectMissing("x")))
    assert (await world.build(world.driver(faults))).rows == 1
    await world.append(["b"])
    for _ in range(5):
        faults.at("blob get_ranges", Fail(ObjectMissing("x")), nth=1 + len(faults.armed))
    report = await world.build(world.driver(faults))
    assert (report.outcome, "object x does not exist" in report.error) == ("failed", True)


async def test_partitions_that_are_added(world: World) -> None:
    await world.create(1)
    await world.append(["a"])
    await world.build()
    await world.log.node.topics.add_partitions(TOPIC, 3)
    await world.append(["b"], 2)
    assert (await world.build()).rows == 1
    assert await world.offsets() == [Row(0, 0), Row(2, 0)]


async def test_what_was_trimmed_is_told(world: World, kind: str) -> None:
    await world.create(format=kind)
    await world.append(["a"])
    await world.append(["b"])
    await world.build()
    await world.append(["c"])
    await world.append(["d"])
    await world.log.trim(TOPIC, 3)
    report = await world.build()
    assert report.losses == ("orders/0 was trimmed: offsets 2 to 2 are not in the table",)
    assert await world.offsets() == [Row(0, 0), Row(0, 1), Row(0, 3)]
    assert (await world.build()).losses == ()


async def test_a_topic_that_is_made_again_has_a_table_of_its_own(world: World, kind: str) -> None:
    await world.create(format=kind)
    await world.append(["a", "b"])
    await world.build()
    before = (await world.opened()).table
    await world.log.delete_topic(TOPIC)
    await world.create(format=kind)
    await world.append(["c"])
    report = await world.build()
    topic = await world.topic()
    assert report.table.endswith(f"/orders-{topic.topic_id[:8]}")
    assert (await world.rows())["value"].to_pylist() == [b"c"]
    assert len(await before.files()) == 1
    assert (await world.build(world.driver(is_new=True))).outcome == "idle"


async def test_a_topic_that_takes_the_name_of_dead_letters(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create(format=kind)
    await world.append(["a"])
    await world.build()  # the names of its tables are known from here on, and one of them is free
    monkeypatch.setattr("tests.tables.world.TOPIC", f"{TOPIC}__errors")
    await world.create(format=kind)
    await world.append(["own"])
    await world.build()
    monkeypatch.setattr("tests.tables.world.TOPIC", TOPIC)
    assert [report.orphans for report in await world.keep_up()] == [0, 0]
    await world.configure(value_format="json", value_schema='{"properties": {"n": {"type": "integer"}}}')
    await world.append(["bad"])
    report = await world.build()
    assert (report.error, report.dead_letters) == ("", 1)
    assert await world.offsets(letters=True) == [Row(0, 1)]
    monkeypatch.setattr("tests.tables.world.TOPIC", f"{TOPIC}__errors")
    assert (await world.rows())["value"].to_pylist() == [b"own"]
    await world.append(["more"])
    await world.build()
    assert await world.offsets() == rows_of(2)


class TestCrashes:
    """A driver dies at each of its steps, before the step is done and after; another one comes."""

    @pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
    async def test_at_every_step(self, world: World, kind: str) -> None:
        await world.create(format=kind, value_format="json", value_schema='{"properties": {"n": {"type": "integer"}}}')
        expected, at, is_dead = 0, 0, True
        while is_dead:
            at += 1
            for applied in (False, True):
                await world.append(['{"n": 1}', "no JSON", '{"n": 2}'])
                expected += 3
                dying = Steps(at, applied=applied)
                await world.build(world.driver(dying))
                is_dead = len(dying.names) >= at
                assert (await world.build()).error == ""
                good = [Row(0, offset) for offset in range(expected) if offset % 3 != 1]
                bad = [Row(0, offset) for offset in range(expected) if offset % 3 == 1]
                assert await world.offsets() == good, f"step {at} of {dying.names}"
                assert await world.offsets(letters=True) == bad, f"step {at} of {dying.names}"
        assert at > 6

    @pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
    async def test_at_every_step_of_a_new_schema(self, world: World, kind: str) -> None:
        """Fields are added at the top and within a struct; each has its column, whoever has made it."""

        def schema(count: int) -> str:
            fields = {name: {"type": "integer"} for number in range(count) for name in (f"f {number}", f"f_{number}")}
            return json.dumps({"properties": {"x": {"type": "object", "properties": fields}, **fields}})

        await world.create(format=kind, value_format="json", value_schema=schema(1))
        expected, count, at, is_dead = list[tuple[int, int]](), 1, 0, True
        while is_dead:
            at += 1
            for applied in (False, True):
                count += 1
                name = f"f_{count - 1}"
                await world.configure(value_schema=schema(count))
                await world.append([f'{{"{name}": {count}, "x": {{"{name}": {-count}}}}}'])
                expected.append((count, -count))
                dying = Steps(at, applied=applied)
                await world.build(world.driver(dying))
                is_dead = len(dying.names) >= at
                report = await world.build()
                assert (report.error, report.dead_letters) == ("", 0)
        rows = (await world.rows()).to_pylist()
        columns = [f"f_{number}_" for number in range(1, count)]  # the plain name is that of the one with a space
        assert [(row[name], row["x"][name]) for row, name in zip(rows, columns, strict=True)] == expected
        assert at > 4

    async def test_in_a_task(self, world: World) -> None:
        await world.create()
        await world.append(["a"])
        faults = Faults()
        faults.at("blob get_ranges", Fail(StoreUnavailable("down")))
        report = await world.build(world.driver(faults))
        assert (report.outcome, "down" in report.error) == ("failed", True)
        assert (await world.build()).rows == 1


class TestRaces:
    async def test_one_that_slept_through_its_commit_plans_anew(self, world: World, kind: str) -> None:
        await world.create(format=kind)
        await world.append(["a", "b"])
        faults = Faults()
        asleep = faults.at("commit", Stall())  # its file is written, and not committed
        sleeping = asyncio.create_task(world.build(world.driver(faults)))
        await asleep.reached.wait()
        assert (await world.build()).rows == 2
        await world.append(["c"])
        asleep.let_go()
        report = await sleeping
        assert (report.error, report.rows) == ("", 1)
        assert await world.offsets() == rows_of(3)

    @pytest.mark.long
    async def test_one_that_slept_before_its_dead_letters(self, world: World, kind: str) -> None:
        """Others finish what it has begun, and it can't do so once more."""
        await world.create(format=kind, value_format="json", value_schema='{"properties": {"n": {"type": "integer"}}}')
        await world.append(["bad"])
        await world.build()
        await world.append(['{"n": 1}', "bad"])
        step = 1
        while step:
            sleeper = Steps(step, sleeps=True)
            sleeping = asyncio.create_task(world.build(world.driver(sleeper)))
            waiting = asyncio.create_task(sleeper.asleep.wait())
            await asyncio.wait([sleeping, waiting], return_when=asyncio.FIRST_COMPLETED)
            if sleeping.done():
                waiting.cancel()
                break
            for _ in range(2):
                await world.append(['{"n": 1}', "bad"])
                assert (await world.build()).error == ""
            sleeper.wake.set()
            assert (await sleeping).error == ""
            await world.build()
            tail = await world.log.tail(TOPIC)
            letters, rows = await world.offsets(letters=True), await world.offsets()
            assert letters == [Row(0, offset) for offset in range(0, tail, 2)], f"step {step} of {sleeper.names}"
            assert rows == [Row(0, offset) for offset in range(1, tail, 2)], f"step {step} of {sleeper.names}"
            await world.append(['{"n": 1}', "bad"])
            step += 1
        assert step > 5

    async def test_many_at_once(self, world: World, kind: str) -> None:
        await world.create(2, format=kind)
        for number in range(6):
            await world.append([str(number)], number % 2)
        reports = await asyncio.gather(*(world.build(world.driver(max_records=2)) for _ in range(3)))
        assert [report.error for report in reports] == [""] * 3
        await world.build()
        assert await world.offsets() == rows_of(3, 3)


async def test_a_commit_of_unknown_outcome_is_looked_up(world: World) -> None:
    await world.create()
    await world.append(["a"])
    await world.build()
    for version, applied in ((2, False), (3, True)):
        await world.append(["b"])
        faults = Faults()
        faults.at(f"{version:020d}.json put", Fail(OutcomeUnknown("who knows"), applied))
        report = await world.build(world.driver(faults))
        assert (report.error, report.rows, faults.armed) == ("", 1, [])
    assert await world.offsets() == rows_of(3)


async def test_a_field_that_differs_in_case_only(world: World, kind: str) -> None:
    """It is another field, at the top and within a struct, and has a column of its own for good."""

    def schema(*names: str) -> str:
        fields = {name: {"type": "integer"} for name in names}
        return json.dumps({"properties": {**fields, "x": {"type": "object", "properties": fields}}})

    await world.create(format=kind, value_format="json", value_schema=schema("Foo", "a b"))
    await world.append(['{"Foo": 1, "a b": 10, "x": {"Foo": 2, "a b": 20}}'])
    await world.build()
    await world.configure(value_schema=schema("a_b", "foo"))
    await world.append(['{"foo": 3, "a_b": 30, "x": {"foo": 4, "a_b": 40}}'])
    report = await world.build(world.driver(is_new=True))
    assert (report.outcome, report.error, report.dead_letters) == ("committed", "", 0)
    await world.configure(value_schema=schema("foo", "Foo", "a_b", "a b"))
    await world.append(['{"foo": 5, "Foo": 6, "a_b": 50, "a b": 60, "x": {"foo": 7, "Foo": 8, "a_b": 70, "a b": 80}}'])
    await world.build(world.driver(is_new=True))
    for compacted in (3, 0):
        rows = (await world.rows()).to_pylist()
        assert [[row[name] for name in ("Foo", "foo_", "a_b", "a_b_")] for row in rows] == [
            [1, None, 10, None],
            [None, 3, None, 30],
            [6, 5, 60, 50],
        ]
        assert [row["x"] for row in rows] == [
            {"Foo": 2, "a_b": 20, "a_b_": None, "foo_": None},
            {"Foo": None, "a_b": None, "a_b_": 40, "foo_": 4},
            {"Foo": 8, "a_b": 80, "a_b_": 70, "foo_": 7},
        ]
        reports = await world.keep_up(small_files=2)
        assert (reports[0].compacted, reports[0].error) == (compacted, "")


async def test_raw_values_of_a_table_that_was_typed(world: World, kind: str) -> None:
    await world.create(format=kind, value_format="json", value_schema='{"properties": {"value": {"type": "integer"}}}')
    await world.append(['{"value": 1}'])
    await world.build()
    await world.configure(value_format="raw")
    await world.append(["hello", None])
    report = await world.build()
    assert (report.error, report.rows, report.dead_letters) == ("", 1, 1)
    assert (await world.rows())["value"].to_pylist() == [1, None]
    (letter,) = (await world.rows(letters=True)).to_pylist()
    assert (letter["value"], "column value is int64" in letter["reason"]) == (b"hello", True)


async def test_fields_of_a_struct_that_differ_in_case_only(world: World, kind: str) -> None:
    inner = '{"type": "object", "properties": {"A": {"type": "integer"}, "a": {"type": "integer"}}}'
    await world.create(format=kind, value_format="json", value_schema=f'{{"properties": {{"x": {inner}}}}}')
    await world.append(['{"x": {"A": 1, "a": 2}}'])
    assert (await world.build()).error == ""
    assert (await world.rows())["x"].to_pylist() == [{"A": 1, "a_": 2}]


async def test_names_of_other_alphabets(world: World, kind: str) -> None:
    """Each is its own column, also when others come before it."""
    fields = dict.fromkeys(("新", "名", "größe"), '{"type": "string"}')

    def schema(*names: str) -> str:
        return '{"properties": {' + ", ".join(f'"{name}": {fields[name]}' for name in names) + "}}"

    await world.create(format=kind, value_format="json", value_schema=schema("名", "größe"))
    await world.append(['{"名": "a", "größe": "b"}'])
    await world.build()
    await world.configure(value_schema=schema("新", "名", "größe"))
    await world.append(['{"新": "c", "名": "d", "größe": "e"}'])
    assert (await world.build()).rows == 1
    (report,) = [each for each in await world.keep_up(small_files=2) if each.compacted]
    assert (report.compacted, report.error) == (2, "")
    rows = await world.rows()
    assert [rows[name].to_pylist() for name in fields] == [[None, "c"], ["a", "d"], ["b", "e"]]


async def test_columns_that_two_drivers_add(world: World, kind: str) -> None:
    await world.create(format=kind)
    table = (await world.opened()).table
    state = await table.create(RAW)
    wanted = evolved(state.schema, [VALUE_FIELD, pa.field("more", pa.int64())])
    await table.evolve(state, wanted)
    with pytest.raises(StaleView, match="columns meanwhile"):
        await table.evolve(state, wanted)


async def test_a_failure_of_any_kind_is_in_the_report(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.create()
    await world.append(["a"])

    class Broken(TableOpener):
        async def open(self, topic: TopicRecord, kind: TableFormat) -> OpenTable:
            raise ZeroDivisionError(f"{kind} of {topic.name}")

    driver = world.driver()
    opener = Broken(driver.opener.storage, driver.objects, Disk(1), driver.clock, driver.entropy)
    report = await world.build(driver._replace(opener=opener))
    assert (report.outcome, report.error) == ("failed", "ZeroDivisionError: delta of orders")
    (upkeep,) = await world.keep_up(driver._replace(opener=opener))
    assert upkeep.error == "ZeroDivisionError: delta of orders"
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert (await world.build()).rows == 1


def damage(folder: Path) -> None:
    for path in folder.rglob("*.json"):
        path.write_bytes(b"")


async def test_a_table_whose_metadata_is_damaged(world: World, kind: str) -> None:
    await world.create(format=kind)
    await world.append(["a"])
    await world.build()
    damage(Path((await world.opened()).table.uri))
    await world.append(["b"])
    driver = world.driver()
    report = await world.build(driver)
    assert report.outcome == "failed"
    assert re.match("Corrupt|StoreRefused|StoreUnavailable", report.error), report.error
    (upkeep,) = await world.keep_up(driver)
    assert re.match("Corrupt|StoreRefused|StoreUnavailable", upkeep.error), upkeep.error


async def test_days_that_no_calendar_has(world: World, kind: str) -> None:
    await world.create(format=kind)
    await world.append(["a"], at_ms=2**62)
    await world.append(["b"], at_ms=0)
    assert (await world.build()).rows == 2
    rows = await world.rows()
    days = pa.compute.cast(rows["day"], pa.int32()).to_pylist()
    assert days == [2_932_896, 0]


async def test_where_work_takes_long_it_begins_earlier(world: World) -> None:
    """A quarter of the interval is taken for granted; beyond that it has to be known from the last time."""
    await world.create(commit_interval_ms="3600000")
    await world.append(["a"])
    topic = await world.topic()
    driver = world.driver()._replace(took_ms={topic.topic_id: 1_700_000})
    assert (await world.build(driver, only_if_due=True)).outcome == "waiting"
    driver = driver._replace(took_ms={topic.topic_id: 1_800_000})
    assert (await world.build(driver, only_if_due=True)).outcome == "committed"
    assert driver.took_ms is not None
    assert driver.took_ms[topic.topic_id] < 1_000_000
    await world.append(["b"])
    assert (await world.build(driver, only_if_due=True)).outcome == "waiting"
