"""Consumers are told once that their partitions are led elsewhere, and only where that is new to them."""

from __future__ import annotations

import pytest

from catena.broker import moved_leaders
from catena.broker.base import Client
from catena.broker.moved_leaders import SETTLED_S, MovedLeaders
from catena.virtual_log.log import VirtualLog
from tests.broker.world import BrokerNode, World

PARTITIONS = 16


@pytest.fixture
async def alone(world: World) -> BrokerNode:
    node = await world.node(1)
    await node.node.topics.create("t", PARTITIONS)
    return node


@pytest.fixture
async def logs(alone: BrokerNode) -> list[VirtualLog]:
    return [await alone.node.log("t", number) for number in range(PARTITIONS)]


def lost_by(node: BrokerNode, logs: list[VirtualLog]) -> list[bool]:
    leader = node.membership.view.placement.leader
    return [leader(log.tp.topic_id, log.tp.partition) != node.membership.node_id for log in logs]


async def test_who_was_served_before_a_node_came_is_told_once(
    alone: BrokerNode, logs: list[VirtualLog], world: World
) -> None:
    moved = MovedLeaders(alone.membership, world.clock)
    client, other = Client("h", "main"), Client("h", "main")
    for each in (client, other):
        assert not any(moved.of(logs, each))
    second = await world.node(2)
    await world.together(alone, second)
    assert not any(moved.of(logs, client)), "other nodes may not know yet"
    world.clock.leap(SETTLED_S)
    lost = moved.of(logs, client)
    assert lost == lost_by(alone, logs)
    assert 0 < sum(lost) < PARTITIONS
    assert not any(moved.of(logs, client)), "who comes back is served"
    assert any(moved.of(logs, other))


async def test_who_comes_when_others_lead_already_is_left_in_peace(
    alone: BrokerNode, logs: list[VirtualLog], world: World
) -> None:
    await world.together(alone, await world.node(2))
    moved = MovedLeaders(alone.membership, world.clock)
    client = Client("h", "main")
    for _ in range(3):
        assert not any(moved.of(logs, client))
        world.clock.leap(SETTLED_S)


async def test_a_node_that_was_away_for_a_moment_gets_back_what_it_had(
    alone: BrokerNode, logs: list[VirtualLog], world: World
) -> None:
    second = await world.node(2)
    await world.together(alone, second)
    moved = MovedLeaders(alone.membership, world.clock)
    client = Client("h", "main")
    assert not any(moved.of(logs, client))
    await second.membership.close()
    while len(alone.membership.view.nodes) > 1:
        await alone.membership.changed(alone.membership.view.revision)
    assert not any(moved.of(logs, client)), "this node has lost nothing"
    await world.together(alone, await world.node(2))
    assert not any(moved.of(logs, client))
    world.clock.leap(SETTLED_S)
    assert moved.of(logs, client) == lost_by(alone, logs)


async def test_it_remembers_only_so_many(
    alone: BrokerNode, logs: list[VirtualLog], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moved_leaders, "MAX_CONNECTIONS", 10)
    moved = MovedLeaders(alone.membership, world.clock)
    clients = [Client("h", "main") for _ in range(100)]
    for client in clients:
        moved.of(logs, client)
    await world.together(alone, await world.node(2))
    moved.of(logs, clients[99])
    world.clock.leap(SETTLED_S)
    told = [number for number in reversed(range(100)) if any(moved.of(logs, clients[number]))]
    assert told == list(reversed(range(90, 100)))
