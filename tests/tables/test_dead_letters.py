"""Two tables that agree, whoever has done how much. How drivers die in between is in test_building.py."""

from __future__ import annotations

import pytest

from catena.errors import Corrupt, OutcomeUnknown
from catena.runtime import SystemEntropy
from catena.tables.columns import DEAD_LETTERS, RAW
from catena.tables.committer import Change, Committer
from catena.tables.dead_letters import list_key, put_list, settle
from catena.tables.iceberg import open_catalog
from catena.tables.storage import Storage
from catena.testing.contracts.tables import loaded, make_file
from catena.testing.faults import Fail, Faults
from tests.tables.world import World


async def test_what_is_open_is_done_once(world: World) -> None:
    await world.create()
    opened, objects = await world.opened(), world.log.node.objects
    state = await opened.table.create(RAW)
    await opened.letters.create(DEAD_LETTERS)
    assert not await settle(objects, opened, state)
    file = make_file()
    number = await put_list(objects, SystemEntropy(), opened.prefix, state, {0: 3}, [file])
    assert 0 < number < 2**63
    after = await opened.table.commit(state, Change(progress={0: 3}, letters=number))
    assert await settle(objects, opened, after)
    assert not await settle(objects, opened, after)
    assert await opened.letters.files() == [file]
    assert (await loaded(opened.letters)).guards.letters == number

    second = await put_list(objects, SystemEntropy(), opened.prefix, after, {0: 4}, [make_file()])
    last = await opened.table.commit(after, Change(progress={0: 4}, letters=second))
    assert await settle(objects, opened, last)
    assert not await settle(objects, opened, after), "an old state has nothing open"
    assert len(await opened.letters.files()) == 2


async def test_a_list_whose_outcome_is_not_known(world: World) -> None:
    await world.create()
    state = await (await world.opened()).table.create(RAW)

    class Known(SystemEntropy):
        def hex_id(self) -> str:
            return "f" * 32

    faults = Faults()
    faults.at("3fffffffffffffff.json put", Fail(OutcomeUnknown("?"), applied=True))
    driver = world.driver(faults)
    number = await put_list(driver.objects, Known(), "tables/delta/orders", state, {}, [])
    assert (number, faults.armed) == (2**62 - 1, [])


async def test_what_is_gone_is_told(world: World) -> None:
    await world.create()
    opened, objects = await world.opened(), world.log.node.objects
    state = await opened.table.create(RAW)
    after = await opened.table.commit(state, Change(progress={0: 3}, letters=5))
    with pytest.raises(Corrupt, match="__errors is gone"):
        await settle(objects, opened, after)
    await opened.letters.create(DEAD_LETTERS)
    with pytest.raises(Corrupt, match="lists dead letters"):
        await settle(objects, opened, after)
    await objects.put(list_key(opened.prefix, 5), [b"{"])
    with pytest.raises(Corrupt, match="can't be read"):
        await settle(objects, opened, after)


async def delete_table(world: World, committer: Committer, kind: str) -> None:
    """As a person does it, who has no use for it."""
    objects = world.log.node.objects
    if kind == "iceberg":
        catalog = open_catalog(Storage.of(world.settings).catalog, {})
        catalog.drop_table(("catena", committer.name))
        catalog.close()
    await objects.delete([info.key async for info in objects.list(f"tables/{kind}/{committer.name}/")])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("is_main", [True, False])
async def test_none_is_lost_once_a_table_is_deleted(world: World, kind: str, is_main: bool) -> None:
    await world.create(format=kind, value_format="json", value_schema='{"properties": {"n": {"type": "integer"}}}')
    for _ in range(2):
        await world.append(["bad"])
        await world.build()
    opened = await world.opened()
    await delete_table(world, opened.table if is_main else opened.letters, kind)
    for _ in range(2):
        await world.append(["bad"])
        assert (await world.build()).error == ""
    offsets = [row.offset for row in await world.offsets(letters=True)]
    assert offsets == ([0, 0, 1, 1, 2, 3] if is_main else [2, 3])
