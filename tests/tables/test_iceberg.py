"""What is particular to Iceberg tables: the catalog, columns' ids, and states that expire."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType
from sqlalchemy.exc import OperationalError

from catena.errors import OutcomeUnknown, StaleView, StoreUnavailable
from catena.tables import iceberg
from catena.tables.committer import Change
from catena.testing.contracts.tables import loaded, make_file
from tests.tables.world import World


async def test_files_carry_ids_and_the_day(world: World) -> None:
    await world.create(format="iceberg")
    await world.append(["a"])
    await world.build()
    opened = await world.opened()
    (file,) = await opened.table.files()
    schema = pq.read_schema(f"{opened.table.uri}/{file.path}")
    assert schema.field("day").metadata[b"PARQUET:field_id"].isdigit()
    ids = [schema.field("_catena").type.field(name).metadata[b"PARQUET:field_id"] for name in ("partition", "offset")]
    assert len(set(ids)) == 2


async def test_other_programs_may_work_on_it(world: World) -> None:
    await world.create(format="iceberg")
    for number in range(3):
        await world.append([str(number)])
        await world.build()
    storage = world.driver().opener.storage
    catalog = iceberg.open_catalog(storage.catalog, storage.iceberg_properties)
    table = catalog.load_table(("catena", "orders"))
    with table.update_schema() as update:
        update.add_column("note", StringType())
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})
    catalog.close()
    await world.append(["3"])
    assert (await world.build()).rows == 1
    assert (await world.rows())["value"].to_pylist() == [b"0", b"1", b"2", b"3"]


async def test_expired_states_take_their_manifests_along(world: World) -> None:
    await world.create(format="iceberg")
    for number in range(4):
        await world.append([str(number)])
        await world.build()
    table = (await world.opened()).table
    objects = world.log.node.objects

    async def metadata() -> int:
        return len([info async for info in objects.list("tables/iceberg/orders/metadata/") if ".avro" in info.key])

    before = await metadata()
    assert await table.expire(1 << 42) == 3
    assert await metadata() == before - 3, "lists of manifests; the manifests themselves are still used"
    assert len(await world.offsets()) == 4


async def test_states_that_expire_while_another_looks_at_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks is told to look again; a file that the table needs now, and that is gone, is no reason for that."""
    await world.create(format="iceberg")
    for number in range(3):
        await world.append([str(number)])
        await world.build()
    slow, other = (await world.opened()).table, (await world.opened()).table
    loop, data_files = asyncio.get_running_loop(), iceberg._data_files

    def meanwhile(*given: Any) -> Iterator[Any]:
        asyncio.run_coroutine_threadsafe(other.expire(1 << 42), loop).result()
        return data_files(*given)

    monkeypatch.setattr(iceberg, "_data_files", meanwhile)
    with pytest.raises(StaleView, match="has moved on"):
        await slow.in_use(["x"])
    monkeypatch.undo()
    assert await slow.in_use(["x"]) == set()
    objects = world.log.node.objects
    found = [info.key async for info in objects.list("tables/iceberg/orders/metadata/")]
    await objects.delete([key for key in found if key.endswith("-m0.avro")])
    with pytest.raises(StoreUnavailable, match="No such file"):
        await slow.files()


@pytest.mark.parametrize("applied", [False, True])
async def test_a_database_that_fails_within_a_commit(
    world: World, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    await world.create(format="iceberg")
    await world.append(["a"])
    await world.build()
    table = (await world.opened()).table
    state = await loaded(table)
    apply = iceberg.IcebergCommitter._apply

    def failing(*args: object) -> None:
        if applied:
            apply(*args)  # type: ignore[arg-type]
        raise OperationalError("commit", {}, Exception("gone"))

    monkeypatch.setattr(iceberg.IcebergCommitter, "_apply", failing)
    with pytest.raises(OutcomeUnknown):
        await table.commit(state, Change(added=[make_file()], progress={0: 2}))
    monkeypatch.undo()
    assert (await loaded(table)).guards.progress == {0: 2 if applied else 1}


async def test_a_catalog_that_is_down(world: World) -> None:
    await world.create(format="iceberg")
    opener = world.driver().opener
    opener.storage = opener.storage._replace(catalog="sqlite:////nowhere/at/all.db")
    with pytest.raises(StoreUnavailable):
        await opener.open(await world.topic(), "iceberg")
