"""Consumers are told once that their partitions are led elsewhere, and only where that is new to them."""

from __future__ import annotations

import pytest

from catena.broker import moved_leaders
from catena.broker.base import Client
from catena.broker.moved_leaders import SETTLED_S, MovedLeaders
from catena.cluster.placement import PartitionOf
from catena.types import TopicId
from tests.broker.world import BrokerNode, World

PARTITIONS = 16


@pytest.fixture
async def alone(world: World) -> BrokerNode:
    node = await world.node(1)
    await node.node.topics.create("t", PARTITIONS)
    return node


@pytest.fixture
async def fetched(alone: BrokerNode) -> list[PartitionOf]:
    topic_id = (await alone.node.log("t", 0)).tp.topic_id
    return [PartitionOf(topic_id, number, PARTITIONS) for number in range(PARTITIONS)]


def lost_by(node: BrokerNode, fetched: list[PartitionOf]) -> list[bool]:
    return [node.membership.view.placement.leader(each) != node.membership.node_id for each in fetched]


async def test_who_was_served_before_a_node_came_is_told_once(
    alone: BrokerNode, fetched: list[PartitionOf], world: World
) -> None:
    moved = MovedLeaders(alone.membership, world.clock)
    client, other = Client("h", "main"), Client("h", "main")
    for each in (client, other):
        assert not any(moved.of(fetched, each))
    second = await world.node(2)
    await world.together(alone, second)
    assert not any(moved.of(fetched, client)), "other nodes may not know yet"
    world.clock.leap(SETTLED_S)
    lost = moved.of(fetched, client)
    assert lost == lost_by(alone, fetched)
    assert sum(lost) == PARTITIONS // 2
    assert not any(moved.of(fetched, client)), "who comes back is served"
    assert any(moved.of(fetched, other))


async def test_who_comes_when_others_lead_already_is_left_in_peace(
    alone: BrokerNode, fetched: list[PartitionOf], world: World
) -> None:
    await world.together(alone, await world.node(2))
    moved = MovedLeaders(alone.membership, world.clock)
    client = Client("h", "main")
    for _ in range(3):
        assert not any(moved.of(fetched, client))
        world.clock.leap(SETTLED_S)


async def test_a_node_that_was_away_for_a_moment_gets_back_what_it_had(
    alone: BrokerNode, fetched: list[PartitionOf], world: World
) -> None:
    second = await world.node(2)
    await world.together(alone, second)
    moved = MovedLeaders(alone.membership, world.clock)
    client = Client("h", "main")
    assert not any(moved.of(fetched, client))
    await second.membership.close()
    while len(alone.membership.view.nodes) > 1:
        await alone.membership.changed(alone.membership.view.revision)
    assert not any(moved.of(fetched, client)), "this node has lost nothing"
    await world.together(alone, await world.node(2))
    assert not any(moved.of(fetched, client))
    world.clock.leap(SETTLED_S)
    assert moved.of(fetched, client) == lost_by(alone, fetched)


async def test_what_moves_between_those_that_stay_is_told_as_well(alone: BrokerNode, world: World) -> None:
    third = await world.node(3)
    await world.together(alone, await world.node(2), third)
    fetched = [PartitionOf(TopicId(f"{topic:032x}"), number, 12) for topic in range(20) for number in range(12)]
    moved, client, elsewhere = MovedLeaders(alone.membership, world.clock), Client("h", "main"), lost_by(alone, fetched)
    assert not any(moved.of(fetched, client))
    await third.membership.close()
    while len(alone.membership.view.nodes) > 2:
        await alone.membership.changed(alone.membership.view.revision)
    assert not any(moved.of(fetched, client)), "other nodes may not know yet"
    world.clock.leap(SETTLED_S)
    lost = moved.of(fetched, client)
    assert lost == [now and not before for before, now in zip(elsewhere, lost_by(alone, fetched), strict=True)]
    assert 0 < sum(lost) < 20


async def test_it_remembers_only_so_many(
    alone: BrokerNode, fetched: list[PartitionOf], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moved_leaders, "MAX_CONNECTIONS", 10)
    moved = MovedLeaders(alone.membership, world.clock)
    clients = [Client("h", "main") for _ in range(100)]
    for client in clients:
        moved.of(fetched, client)
    await world.together(alone, await world.node(2))
    moved.of(fetched, clients[99])
    world.clock.leap(SETTLED_S)
    told = [number for number in reversed(range(100)) if any(moved.of(fetched, clients[number]))]
    assert told == list(reversed(range(90, 100)))
