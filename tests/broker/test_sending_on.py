"""Where fetches are sent by a node that does not read, and who is served there all the same."""

from __future__ import annotations

import logging

import pytest

from catena.broker import sending_on
from catena.broker.base import Client
from catena.broker.sending_on import BACK_S, SERVED_S, SendingOn, SentOn
from catena.cluster.placement import NO_NODE, PartitionOf
from catena.cluster.view import READ, WRITE, Address
from tests.broker.world import BrokerNode, World

READER = 2


@pytest.fixture
async def writer(world: World) -> BrokerNode:
    both = {"main": Address("a", 1), "inside": Address("b", 2)}
    writer = await world.node(1, both, roles=(WRITE,))
    reader = await world.node(READER, roles=(READ,))
    await world.together(writer, reader)
    await writer.node.topics.create("t", 2)
    return writer


@pytest.fixture
async def asked(writer: BrokerNode) -> list[PartitionOf]:
    topic_id = (await writer.node.log("t", 0)).tp.topic_id
    return [PartitionOf(topic_id, number, 2) for number in range(2)]


async def test_who_comes_back_is_served_for_a_while(writer: BrokerNode, asked: list[PartitionOf], world: World) -> None:
    on = SendingOn(writer.membership, world.clock)
    client, other = Client("h", "main"), Client("h", "main")
    assert on.reader(asked[0], 5, client, "") == READER
    assert on.reader(asked[0], 5, other, "") == READER
    assert on.reader(asked[1], 5, client, "") == READER
    for offset in (5, 6, 100):
        assert on.reader(asked[0], offset, client, "") is None
    assert on.counts == SentOn(sent=3, served=3)
    world.clock.leap(SERVED_S)
    assert on.reader(asked[0], 200, client, "") == READER
    assert on.reader(asked[0], 200, client, "") is None
    assert on.counts == SentOn(sent=4, served=4)


async def test_who_has_read_elsewhere_meanwhile_is_sent_there_again(
    writer: BrokerNode, asked: list[PartitionOf], world: World
) -> None:
    on = SendingOn(writer.membership, world.clock)
    client = Client("h", "main")
    for offset in (5, 50, 51):
        assert on.reader(asked[0], offset, client, "") == READER
    world.clock.leap(BACK_S)
    assert on.reader(asked[0], 51, client, "") == READER


async def test_nobody_reads_at_a_listener(
    writer: BrokerNode, asked: list[PartitionOf], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    on = SendingOn(writer.membership, world.clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert on.reader(asked[0], 0, Client("h", "inside"), "") == NO_NODE
    assert on.counts == SentOn(refused=3)
    assert [record.getMessage() for record in caplog.records] == [
        "fetches are refused: no node that has the role `read` is reachable by listener 'inside'"
    ]


async def test_it_remembers_only_so_many(
    writer: BrokerNode, asked: list[PartitionOf], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending_on, "MAX_SENT", 10)
    on = SendingOn(writer.membership, world.clock)
    clients = [Client("h", "main") for _ in range(100)]
    for client in clients:
        assert on.reader(asked[0], 0, client, "") == READER
    assert len(on._sent) == 10
    assert on.reader(asked[0], 0, clients[0], "") == READER
    assert on.reader(asked[0], 0, clients[-1], "") is None
