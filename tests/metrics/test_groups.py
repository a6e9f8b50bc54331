"""How far behind groups are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from catena.broker.group_store import Change, CommittedOffset, GroupStore, HeldGroup, MachineState
from catena.metrics.groups import GroupFigures, GroupLooks
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.loglet import make_entry
from catena.types import TopicId
from tests.broker.world import BrokerNode, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as opened:
        yield World("memory", tmp_path, opened)


async def held(node: BrokerNode, group: str, offsets: dict[tuple[TopicId, int], int]) -> HeldGroup:
    store = GroupStore(node.node.meta, SystemClock(), SystemEntropy())
    taken = (await store.take_over(group, 0)).held
    committed = {slot: CommittedOffset(offset, -1, "", 0) for slot, offset in offsets.items()}
    await store.write(taken, Change(MachineState("classic", "consumer", True, b""), committed))
    return taken


async def topic(node: BrokerNode, name: str, records: dict[int, int]) -> TopicId:
    """With so many records in each partition."""
    await node.node.topics.create(name, len(records))
    await node.view.refresh()
    for number, count in records.items():
        if count:
            await (await node.node.log(name, number)).append(make_entry(*["x"] * count))
    return (await node.view.get(name)).topic_id


async def test_lag_is_from_what_was_committed_to_the_tail(world: World) -> None:
    node = await world.node()
    t = await topic(node, "t", {0: 10, 1: 5, 2: 0})
    gone = TopicId("f" * 32)
    groups = [
        await held(node, "behind", {(t, 0): 2, (t, 1): 5, (t, 2): 0, (gone, 0): 3, (t, 9): 1}),
        await held(node, "far behind", {(t, 0): 0, (t, 1): 0}),
        await held(node, "ahead", {(t, 0): 99}),
        await held(node, "idle", {}),
    ]
    found = await GroupLooks(node.view, node.node.open_log, 100, 10).look(groups)
    assert (found.coordinated, found.unmeasured) == (4, 0)
    assert found.by_name == {
        "far behind": GroupFigures(2, 15, 10),
        "behind": GroupFigures(3, 8, 8),
        "ahead": GroupFigures(1, 0, 0),
        "idle": GroupFigures(0, 0, 0),
    }


async def test_tails_are_read_in_few_calls(world: World) -> None:
    node = await world.node()
    t = await topic(node, "t", dict.fromkeys(range(300), 0))
    groups = [await held(node, f"g{n}", dict.fromkeys(((t, part) for part in range(300)), 0)) for n in range(3)]
    looks = GroupLooks(node.view, node.node.open_log, 1_000, 10)
    await looks.look(groups)  # reads the chains
    before = node.faults.taken.total()
    found = await looks.look(groups)
    assert found.unmeasured == 0
    assert node.faults.taken.total() - before <= 2


async def test_no_more_tails_than_there_is_room_for(world: World) -> None:
    node = await world.node()
    t = await topic(node, "t", {0: 1, 1: 1})
    old, new = await held(node, "old", {(t, 0): 0, (t, 1): 0}), await held(node, "new", {(t, 0): 0})
    found = await GroupLooks(node.view, node.node.open_log, 2, 10).look([old, new])
    assert found.by_name.keys() == {"new"}, "what was used last comes first"
    assert (found.coordinated, found.unmeasured) == (2, 1)
