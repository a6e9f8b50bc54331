"""A table is kept tidy, and no record of it is touched."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import StoreUnavailable
from catena.pipeline.tasks.listing import kind_of
from catena.runtime import SystemEntropy
from catena.tables.committer import DataFile, Span
from catena.tables.upkeep import choose_small, first_day_kept
from catena.testing.faults import Fail, Faults, Stall
from tests.pipeline.drivers import Steps
from tests.tables.world import HOUR_MS, START_MS, Row, World

DAY_MS = 24 * HOUR_MS


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def fill(world: World, commits: int) -> None:
    for number in range(commits):
        await world.append([str(number)])
        assert (await world.build()).commits == 1


async def data_files(world: World) -> list[str]:
    opened = await world.opened()
    objects = world.log.node.objects
    return [info.key async for info in objects.list(f"{opened.prefix}/day=")]


async def test_small_files_become_large_ones(world: World, kind: str) -> None:
    await world.create(format=kind)
    await fill(world, 5)
    await world.configure(value_format="json", value_schema='{"properties": {"added": {"type": "integer"}}}')
    await world.append(['{"added": 1}'])
    await world.build()
    (report, letters) = await world.keep_up(small_files=3, grace_ms=DAY_MS, keep_states_ms=DAY_MS)
    assert (report.compacted, report.compacted_into, report.error, letters.compacted) == (6, 1, "", 0)
    files = await (await world.opened()).table.files()
    assert [(file.rows, file.span and file.span.offset) for file in files] == [(6, (0, 5))]
    rows = await world.rows()
    assert rows["value"].to_pylist() == [b"0", b"1", b"2", b"3", b"4", None]
    assert rows["added"].to_pylist() == [None] * 5 + [1]
    (again, _) = await world.keep_up(small_files=3, grace_ms=DAY_MS, keep_states_ms=DAY_MS)
    assert again.compacted == 0
    await world.append(['{"added": 2}'])
    assert (await world.build()).rows == 1
    assert await world.offsets() == [Row(0, offset) for offset in range(7)]


async def test_what_nobody_needs_is_deleted(world: World, kind: str) -> None:
    await world.create(format=kind)
    await fill(world, 3)
    dead = Faults()
    dead.at("commit", Fail(StoreUnavailable("died")))
    await world.append(["orphaned"])
    assert (await world.build(world.driver(dead))).outcome == "failed"
    assert len(await data_files(world)) == 4
    (young,) = await world.keep_up(small_files=3, grace_ms=DAY_MS, keep_states_ms=DAY_MS)
    assert (young.compacted, young.orphans) == (3, 0)
    assert len(await data_files(world)) == 5, "all are too young"
    pass_a_moment(world)
    (report,) = await world.keep_up(small_files=3)
    (more,) = await world.keep_up(small_files=3)
    assert (report.error, more.error) == ("", "")
    assert len(await data_files(world)) == 1
    assert await world.offsets() == [Row(0, 0), Row(0, 1), Row(0, 2)]
    assert (await world.build()).rows == 1


def pass_a_moment(world: World) -> None:
    """Until all that is stored is older than the shortest grace."""
    clock = world.log.node.clock
    began_ms = clock.now_ms()
    while clock.now_ms() < began_ms + 3:
        pass


async def test_a_driver_that_slept_through_the_fence_commits_nothing_that_is_gone(world: World, kind: str) -> None:
    await world.create(format=kind)
    await fill(world, 1)
    await world.append(["a"])
    faults = Faults()
    asleep = faults.at("commit", Stall())
    sleeping = asyncio.create_task(world.build(world.driver(faults)))
    await asleep.reached.wait()
    pass_a_moment(world)
    (report,) = await world.keep_up()
    assert report.orphans == 1
    asleep.let_go()
    assert ((await sleeping).error, (await sleeping).rows) == ("", 1)
    assert await world.offsets() == [Row(0, 0), Row(0, 1)]


SCHEMA = '{"properties": {"n": {"type": "integer"}}}'


async def test_dead_letters_that_are_still_to_be_committed_are_kept(world: World, kind: str) -> None:
    await world.create(format=kind, value_format="json", value_schema=SCHEMA)
    await world.append(['{"n": 1}', "bad"])
    dead = Faults()
    dead.at("commit", Fail(StoreUnavailable("died")), nth=2)  # the table's own commit is done
    assert (await world.build(world.driver(dead))).outcome == "failed"
    pass_a_moment(world)
    reports = await world.keep_up()
    assert [(report.orphans, report.error) for report in reports] == [(0, ""), (0, "")]
    # A file of nobody beside them makes upkeep go all the way.
    opened = await world.opened()
    await world.log.node.objects.put(f"{opened.letters_prefix}/day=2023-11-14/{'0' * 32}.parquet", [b"x"])
    pass_a_moment(world)
    assert [report.orphans for report in await world.keep_up()] == [0, 1]
    assert (await world.build()).error == ""
    assert (await world.offsets(), await world.offsets(letters=True)) == ([Row(0, 0)], [Row(0, 1)])
    assert [report.orphans for report in await world.keep_up()] == [0, 0]


async def test_a_driver_that_slept_before_its_list_names_no_letters_that_are_gone(world: World, kind: str) -> None:
    class Known(SystemEntropy):
        def hex_id(self) -> str:
            return "f" * 32

    await world.create(format=kind, value_format="json", value_schema=SCHEMA)
    await world.append(['{"n": 1}'])
    await world.build()
    await world.append(["bad"])
    faults = Faults()
    asleep = faults.at("3fffffffffffffff.json put", Stall())
    sleeping = asyncio.create_task(world.build(world.driver(faults)._replace(entropy=Known())))
    await asleep.reached.wait()
    pass_a_moment(world)
    reports = await world.keep_up()
    assert [(report.orphans, report.error) for report in reports] == [(0, ""), (1, "")]
    asleep.let_go()
    await sleeping
    assert (await world.build()).error == ""
    assert (await world.offsets(), await world.offsets(letters=True)) == ([Row(0, 0)], [Row(0, 1)])


async def test_old_days_are_dropped(world: World, kind: str) -> None:
    await world.create(format=kind, retention_ms=str(2 * DAY_MS))
    now_ms = START_MS
    await world.append(["old"], at_ms=now_ms)
    await world.append(["young"], at_ms=world.log.node.clock.now_ms())
    await world.build()
    (report,) = await world.keep_up()
    assert (report.dropped, report.error) == (1, "")
    assert (await world.rows())["value"].to_pylist() == [b"young"]
    assert (await world.build()).outcome == "idle", "what was dropped is not brought back"


@pytest.mark.parametrize("applied", [False, True])
async def test_a_death_at_each_step(world: World, applied: bool) -> None:
    await world.create()
    table = (await world.opened()).table
    at, count, is_dead = 0, 0, True
    while is_dead:
        at += 1
        missing = 3 if not count else 3 - len(await table.files())
        await fill(world, missing)
        count += missing
        dying = Steps(at, applied=applied)
        await world.keep_up(world.driver(dying), small_files=2)
        is_dead = len(dying.names) >= at
        assert await world.offsets() == [Row(0, offset) for offset in range(count)], f"step {at} of {dying.names}"
    assert at > 5
    assert [report.error for report in await world.keep_up(small_files=2)] == [""]


@pytest.mark.long
@pytest.mark.parametrize("applied", [False, True])
async def test_a_death_at_each_step_while_dead_letters_wait(world: World, applied: bool) -> None:
    await world.create(value_format="json", value_schema=SCHEMA)
    opened = await world.opened()
    at, is_dead = 0, True
    while is_dead:
        at += 1
        await world.append(["bad"])
        dead = Faults()
        dead.at("commit", Fail(StoreUnavailable("died")), nth=2)
        assert (await world.build(world.driver(dead))).outcome == "failed"
        await world.log.node.objects.put(f"{opened.letters_prefix}/day=2023-11-14/{at:032x}.parquet", [b"x"])
        pass_a_moment(world)
        dying = Steps(at, applied=applied)
        await world.keep_up(world.driver(dying), small_files=1000)
        is_dead = len(dying.names) >= at
        assert (await world.build()).error == ""
        letters = await world.offsets(letters=True)
        assert letters == [Row(0, offset) for offset in range(at)], f"step {at} of {dying.names}"
    assert at > 3


async def test_vacuum_leaves_tables_alone(world: World) -> None:
    await world.create(value_format="json", value_schema='{"properties": {"n": {"type": "integer"}}}')
    await world.append(["bad", '{"n": 1}'])
    await world.build()
    keys = [info.key async for info in world.log.node.objects.list("tables/")]
    assert len(keys) > 5
    assert {kind_of(key) for key in keys} == {None}, "it deletes nothing but what it knows by its form"


def make(day: str, size: int, offset: int) -> DataFile:
    return DataFile(f"day={day}/{offset}", day, 1, size, Span((0, 0), (offset, offset), (0, 0)))


def test_which_files_are_small() -> None:
    files = [make("2026-01-01", 10, offset) for offset in range(7)]
    other, large = make("2026-01-02", 10, 7), make("2026-01-01", 50, 8)
    chosen = choose_small([large, other, *reversed(files)], 100, 7)
    assert chosen == [files]
    assert choose_small(files, 100, 8) == []
    assert choose_small(files, 40, 8) == [files[:4]], "a full one does not wait for more"


def test_the_first_day_that_is_kept() -> None:
    assert first_day_kept(START_MS, DAY_MS) == "2023-11-13"
    assert first_day_kept(START_MS, 0) == "2023-11-14"
    assert first_day_kept(START_MS, 2**62) == ""
