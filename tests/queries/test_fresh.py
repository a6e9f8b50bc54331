"""Each record is in a file or in a range, in exactly one, whatever happens between the looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from catena.errors import Contended
from catena.queries import fresh
from catena.queries.fresh import Fresh, look
from catena.tables import planning
from catena.tables.columns import typed
from catena.tables.committer import Change, DataFile, Owner, TableState
from catena.tables.settings import TableFormat
from catena.tables.storage import TableOpener
from catena.types import TopicId
from tests.tables.world import World, opened_world

FORMATS = ["delta", "iceberg"]

ONE = '{"properties": {"a": {"type": "integer"}}}'
TWO = '{"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened_world(tmp_path) as opened:
        yield opened


async def see(world: World, opener: TableOpener | None = None) -> Fresh:
    driver = world.driver()
    return await look(driver.node, opener or driver.opener, await world.topic())


def offsets(found: Fresh) -> Counter[tuple[int, int]]:
    """By the spans of files, of which tests have one for each partition and build, and by ranges."""
    seen: Counter[tuple[int, int]] = Counter()
    for file in found.files:
        assert file.span is not None
        assert file.span.partition[0] == file.span.partition[1]
        seen.update((file.span.partition[0], at) for at in range(file.span.offset[0], file.span.offset[1] + 1))
    for split in found.splits:
        seen.update((split.partition, at) for at in range(split.start, split.end))
    return seen


@pytest.mark.parametrize("kind", FORMATS)
async def test_files_and_ranges_meet(world: World, kind: str) -> None:
    await world.create(1, format=kind)
    for number in range(3):
        await world.append([b"1", b"2"])
        await world.append([b"3"])
        found = await see(world)
        assert offsets(found) == Counter((0, at) for at in range(3 * number + 3))
        if number < 2:
            await world.build()
    assert len((await see(world)).files) == 2


async def test_a_topic_without_a_table_is_its_log(world: World) -> None:
    await world.log.create_topic("orders", 2)
    await world.append([b"1"], 0)
    await world.append([b"1", b"2"], 1)
    found = await see(world)
    assert (found.files, found.schema.names) == ([], ["_catena", "key", "value", "day"])
    assert offsets(found) == Counter([(0, 0), (1, 0), (1, 1)])


class Meanwhile(TableOpener):
    """While its tables are looked at, something happens: between the state and the files, and after both."""

    world: World
    times = 1

    async def open(self, topic, kind):  # type: ignore[no-untyped-def]
        opened = await super().open(topic, kind)
        inner = opened.table.files

        async def files() -> list[DataFile]:
            if self.times:
                self.times -= 1
                await self.world.append([b"more"])
                await self.world.build()
            return await inner()

        opened.table.files = files  # type: ignore[method-assign]
        return opened


@pytest.mark.parametrize("kind", FORMATS)
async def test_a_table_that_moves_on_during_the_look(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create(1, format=kind)
    await world.append([b"1"])
    await world.build()
    await world.append([b"2"])
    opener = world.driver().opener
    opener.__class__ = Meanwhile
    opener.world = world  # type: ignore[attr-defined]
    assert offsets(await see(world, opener)) == Counter((0, at) for at in range(3))
    opener.times = 1000  # type: ignore[attr-defined]
    monkeypatch.setattr(fresh, "MAX_TRIES", 3)
    with pytest.raises(Contended, match="changes faster than it can be looked at"):
        await see(world, opener)


@pytest.mark.parametrize("kind", FORMATS)
async def test_what_came_into_the_table_and_was_trimmed_between_the_looks(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create(1, format=kind)
    await world.append([b"1"])
    await world.build()
    await world.append([b"2", b"3"])
    inner = planning.look

    async def later(*given: Any) -> Any:
        monkeypatch.setattr(planning, "look", inner)
        await world.build()
        await world.log.trim("orders", 3)
        return await inner(*given)

    monkeypatch.setattr(planning, "look", later)
    found = await see(world)
    assert (offsets(found), found.losses) == (Counter((0, at) for at in range(3)), [])


@pytest.mark.parametrize("kind", FORMATS)
async def test_a_table_that_another_topic_takes_during_the_look(world: World, kind: TableFormat) -> None:
    """A driver of a deleted topic of that name may come late, and make its table when the new topic has none yet."""
    await world.create(format=kind)
    await world.append([b"1", b"2"])
    opener = world.driver(is_new=True).opener
    await opener.open(await world.topic(), kind)  # the name is free
    late = opener.committer("orders", Owner("orders", TopicId("f" * 32), 1), kind)
    file = DataFile("day=2023-11-14/late.parquet", "2023-11-14", 2, 100)
    await late.commit(await late.create(typed([])), Change([file], progress={0: 2}))
    found = await see(world, opener)
    assert (found.files, found.losses) == ([], ())
    assert offsets(found) == Counter([(0, 0), (0, 1)])
    await world.build(world.driver(is_new=True))
    found = await see(world, opener)
    assert (len(found.files), offsets(found)) == (1, Counter([(0, 0), (0, 1)]))


async def test_what_was_trimmed_unread_is_told(world: World) -> None:
    await world.create()
    await world.append([b"1"])
    await world.build()
    await world.append([b"2", b"3"])
    await world.log.trim("orders", 2)
    found = await see(world)
    assert offsets(found) == Counter([(0, 0), (0, 2)])
    assert found.losses == ["orders/0 was trimmed: offsets 1 to 1 are not in the table"]


async def test_columns_that_the_table_has_not_got_yet(world: World) -> None:
    await world.create(value_format="json", value_schema=ONE)
    await world.append(['{"a": 1}'])
    await world.build()
    await world.configure(value_schema=TWO)
    state: TableState | None = await (await world.opened()).table.load()
    assert state is not None
    assert state.schema.names == ["_catena", "key", "a", "day"]
    assert (await see(world)).schema.names == ["_catena", "key", "a", "b", "day"]
