"""The contract of `catena.tables.committer`, for every format of tables.

Give it a fixture `open_table` that opens the same table each time it is called, as another process would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import pyarrow as pa
import pytest

from catena.errors import StaleView
from catena.tables.columns import RAW, evolved, typed
from catena.tables.committer import Change, Committer, DataFile, Guards, Span, TableState
from catena.tables.naming import field_of, source_of

RACERS = 4
ROUNDS = 5
_numbers = count(1)


def make_file(day: str = "2026-11-15", rows: int = 10) -> DataFile:
    """None of the same name."""
    number = next(_numbers)
    span = Span((0, 2), (number * 100, number * 100 + rows - 1), (1_700_000_000_000_001, 1_700_000_100_000_000))
    return DataFile(f"day={day}/{number:032x}.parquet", day, rows, 1000 + number, span)


class TableContract:
    async def test_there_is_none_at_first(self, open_table: Callable[[], Committer]) -> None:
        assert await open_table().load() is None

    async def test_create(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        made = await table.create(RAW)
        assert made.schema.equals(RAW)
        assert made.guards == Guards({}, 0, 0)
        assert made.topic_id == "1" * 32
        assert await table.files() == []
        again = await open_table().create(pa.schema([RAW.field("day")]))
        assert (again.schema, again.version) == (made.schema, made.version), "what is there stays"

    async def test_of_several_that_create_it_one_does(self, open_table: Callable[[], Committer]) -> None:
        made = await asyncio.gather(*(open_table().create(RAW) for _ in range(RACERS)))
        assert len({state.version for state in made}) == 1

    async def test_commit(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        state = await table.create(RAW)
        first, second = make_file(), make_file("1969-12-31")
        done = await table.commit(state, Change(added=[first, second], progress={0: 7, 2: 9}, letters=1 << 61))
        assert done.guards == Guards({0: 7, 2: 9}, 1 << 61, 0)
        found = await open_table().load()
        assert found is not None
        assert (found.guards, found.version, found.schema.equals(RAW)) == (done.guards, done.version, True)
        assert {file.path: file for file in await open_table().files()} == {first.path: first, second.path: second}
        after = await table.commit(done, Change(progress={2: 11}))
        assert after.guards == Guards({0: 7, 2: 11}, 1 << 61, 0)

    async def test_a_change_with_no_files_moves_the_progress(self, open_table: Callable[[], Committer]) -> None:
        state = await open_table().create(RAW)
        await open_table().commit(state, Change(progress={1: 3}))
        assert (await loaded(open_table())).guards.progress == {1: 3}

    async def test_records_that_another_has_brought_are_refused(self, open_table: Callable[[], Committer]) -> None:
        state = await open_table().create(RAW)
        mine, theirs = make_file(), make_file()
        await open_table().commit(state, Change(added=[theirs], progress={0: 5}))
        for change in (
            Change(added=[mine], progress={0: 5}),
            Change(added=[mine], progress={1: 5}),
            Change(added=[mine], letters=77),
        ):
            with pytest.raises(StaleView):
                await open_table().commit(state, change)
        assert [file.path for file in await open_table().files()] == [theirs.path]

    async def test_other_changes_in_between_do_not_disturb(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        small, large, more = make_file(), make_file(), make_file()
        state = await table.commit(await table.create(RAW), Change(added=[small], progress={0: 1}))
        await open_table().commit(state, Change(added=[large], removed=[small]))
        wider = evolved(state.schema, [pa.field("note", pa.string())])
        await open_table().evolve(await loaded(open_table()), wider)
        done = await table.commit(state, Change(added=[more], progress={0: 2}))
        assert done.guards.progress == {0: 2}
        assert {file.path for file in await table.files()} == {large.path, more.path}
        assert "note" in (await loaded(table)).schema.names

    async def test_files_are_removed_once(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        small, mine, theirs = make_file(), make_file(), make_file()
        state = await table.commit(await table.create(RAW), Change(added=[small], progress={0: 1}))
        await open_table().commit(state, Change(added=[theirs], removed=[small]))
        with pytest.raises(StaleView):
            await table.commit(state, Change(added=[mine], removed=[small]))
        assert [file.path for file in await table.files()] == [theirs.path]

    async def test_days_are_dropped_without_anything_in_their_place(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        old, young = make_file("2020-02-29"), make_file()
        state = await table.commit(await table.create(RAW), Change(added=[old, young], progress={0: 1}))
        done = await table.commit(state, Change(removed=[old]))
        assert done.guards == state.guards
        assert [file.path for file in await open_table().files()] == [young.path]

    async def test_what_was_planned_before_the_fence_is_refused(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        small = make_file()
        state = await table.commit(await table.create(RAW), Change(added=[small], progress={0: 1}))
        raised = await open_table().commit(state, Change(fence=1))
        assert raised.guards == Guards({0: 1}, 0, 1)
        for change in (
            Change(added=[make_file()], progress={0: 2}),
            Change(added=[make_file()], removed=[small]),
            Change(fence=1),
        ):
            with pytest.raises(StaleView):
                await table.commit(state, change)
        await table.commit(raised, Change(added=[make_file()], progress={0: 2}))

    async def test_columns_are_added(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        state = await table.create(RAW)
        more = [
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("lines", pa.list_(pa.field("element", pa.struct([pa.field("sku", pa.string())])))),
            pa.field("at", pa.timestamp("us", "UTC")),
        ]
        wanted = evolved(state.schema, more)
        wider = await table.evolve(state, wanted)
        found = await loaded(open_table())
        assert found.schema.names == wanted.names == wider.schema.names
        assert [found.schema.field(field.name).type for field in more] == [field.type for field in more]
        assert set(table.file_schema(found).names) >= set(wanted.names) - {"day"}
        assert (await table.evolve(found, evolved(found.schema, more))).version == found.version, "nothing to do"
        await table.commit(found, Change(added=[make_file()], progress={0: 1}))

    async def test_fields_are_added_within_columns(self, open_table: Callable[[], Committer]) -> None:
        def line(*fields: tuple[str, pa.DataType]) -> list[pa.Field]:
            inner = pa.struct([pa.field(name, kind) for name, kind in fields])
            element = pa.list_(pa.field("element", inner))
            return [
                pa.field("one", inner),
                pa.field("lines", element),
                pa.field("by", pa.map_(pa.string(), inner)),
                pa.field("deep", pa.struct([pa.field("lines", element)])),
            ]

        table = open_table()
        state = await table.create(typed(line(("sku", pa.string()))))
        fields = line(("sku", pa.string()), ("Sku", pa.int64()), ("a b", pa.struct([pa.field("x", pa.int32())])))
        wider = await table.evolve(state, evolved(state.schema, fields))
        found = await loaded(open_table())
        names = ["sku", "Sku_", "a_b"]
        assert found.schema.equals(wider.schema)
        for schema in (found.schema, table.file_schema(found)):
            one = schema.field("one").type
            assert [field.name for field in one] == names
            assert [source_of(field) for field in one] == ["sku", "Sku", "a b"]
            assert schema.field("lines").type.value_type.equals(one)
            assert schema.field("by").type.item_type.equals(one)
            assert schema.field("deep").type.field(0).type.value_type.equals(one)
            assert [source_of(field) for field in schema.field("by").type.item_type] == ["sku", "Sku", "a b"]
        assert (await table.evolve(found, evolved(found.schema, fields))).version == found.version, "nothing to do"
        with pytest.raises(StaleView):
            await open_table().evolve(state, evolved(state.schema, line(("more", pa.string()))))

    async def test_what_columns_hold_stays_with_the_table(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        state = await table.create(RAW)
        assert field_of(state.schema.field("value")) is None, "it is as of a table from before names were kept"
        state = await table.evolve(state, evolved(state.schema, [pa.field("value", pa.binary())]))
        found = await loaded(open_table())
        assert [field_of(column) for column in found.schema] == [None, None, "value", None]
        assert found.schema.equals(RAW)
        done = await open_table().commit(found, Change(added=[make_file()], progress={0: 1}))
        assert done.schema.equals(found.schema, check_metadata=True)
        more = await table.evolve(found, evolved(found.schema, [pa.field("Value", pa.int64())]))
        assert [field_of(column) for column in more.schema] == [None, None, "value", "Value", None]
        assert more.schema.names == ["_catena", "key", "value", "Value_", "day"]

    async def test_who_adds_columns_to_an_old_state_loses_none(self, open_table: Callable[[], Committer]) -> None:
        state = await open_table().create(RAW)
        await open_table().evolve(state, evolved(state.schema, [pa.field("theirs", pa.string())]))
        mine = [pa.field("mine", pa.int64())]
        wanted = evolved(state.schema, mine)
        try:
            await open_table().evolve(state, wanted)
        except StaleView:
            now = await loaded(open_table())
            await open_table().evolve(now, evolved(now.schema, mine))
        assert {"mine", "theirs"} <= set((await loaded(open_table())).schema.names)

    async def test_removed_files_are_in_use_until_they_expire(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        small, large, orphan = make_file(), make_file(), make_file()
        state = await table.commit(await table.create(RAW), Change(added=[small], progress={0: 1}))
        await table.commit(state, Change(added=[large], removed=[small]))
        paths = [small.path, large.path, orphan.path]
        assert await table.in_use(paths) == {small.path, large.path}
        assert await table.in_use([]) == set()
        await table.expire(0)
        assert await table.in_use(paths) == {small.path, large.path}

    async def test_what_expires_leaves_the_guards(self, open_table: Callable[[], Committer]) -> None:
        table = open_table()
        state = await table.create(RAW)
        files = [make_file() for _ in range(3)]
        for number, file in enumerate(files):
            state = await table.commit(state, Change(added=[file], progress={0: number + 1}))
        state = await table.commit(state, Change(added=[make_file()], removed=files))
        await table.expire(1 << 42)
        found = await loaded(open_table())
        assert found.guards == Guards({0: 3}, 0, 0)
        assert len(await open_table().files()) == 1
        await open_table().commit(found, Change(added=[make_file()], progress={0: 4}))

    async def test_of_many_that_race_each_step_is_made_once(self, open_table: Callable[[], Committer]) -> None:
        await open_table().create(RAW)
        committed: list[DataFile] = []

        async def race() -> None:
            table = open_table()
            while (state := await loaded(table)).guards.progress.get(0, 0) < ROUNDS:
                file = make_file()
                try:
                    await table.commit(state, Change(added=[file], progress={0: state.guards.progress.get(0, 0) + 1}))
                    committed.append(file)
                except StaleView:
                    continue

        await asyncio.gather(*(race() for _ in range(RACERS)))
        assert len(committed) == ROUNDS
        assert {file.path for file in await open_table().files()} == {file.path for file in committed}


async def loaded(table: Committer) -> TableState:
    state = await table.load()
    assert state is not None
    return state
