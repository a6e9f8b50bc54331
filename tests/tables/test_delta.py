"""What is particular to Delta tables: entries of the log, and whose they are."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from catena.errors import OutcomeUnknown, StaleView, StoreUnavailable
from catena.tables import delta
from catena.tables.committer import Change
from catena.testing.contracts.tables import loaded, make_file
from catena.testing.faults import Fail, Faults
from tests.tables.world import World


async def test_it_is_not_known_while_the_store_is_down(world: World) -> None:
    await world.create()
    await world.append(["a"])
    await world.build()
    faults = Faults()
    table = (await world.driver(faults).opener.open(await world.topic(), "delta")).table
    state = await loaded(table)
    name = f"{state.version + 1:020d}.json"
    faults.at(f"{name} put", Fail(OutcomeUnknown("?"), applied=True))
    faults.at(f"{name} get", Fail(StoreUnavailable("down")))
    with pytest.raises(OutcomeUnknown):
        await table.commit(state, Change(added=[make_file()], progress={0: 2}))
    with pytest.raises(StaleView):
        await table.commit(state, Change(added=[make_file()], progress={0: 2}))


async def test_checkpoints(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    await world.create()
    for number in range(7):
        await world.append([str(number)])
        await world.build()
    uri = (await world.opened()).table.uri
    assert DeltaTable(uri).version() == 7
    keys = [info.key async for info in world.log.node.objects.list("tables/delta/orders/_delta_log/")]
    assert [key.rpartition("/")[2] for key in keys if "checkpoint.parquet" in key] == [
        f"{version:020d}.checkpoint.parquet" for version in (3, 6)
    ]
    assert len(await world.offsets()) == 7


async def test_other_programs_may_work_on_it(world: World) -> None:
    """Its optimizer is deltalake's own here, between two commits of ours."""
    await world.create()
    for number in range(3):
        await world.append([str(number)])
        await world.build()
    DeltaTable((await world.opened()).table.uri).optimize.compact()
    await world.append(["3"])
    assert (await world.build()).rows == 1
    assert (await world.rows())["value"].to_pylist() == [b"0", b"1", b"2", b"3"]
