"""The log that a request names: as this node sees it, and as the store has it where that may be old."""

from __future__ import annotations

import pytest

from catena.broker.handling import Logs, Refused, fault_of, find_topic
from catena.errors import UnknownPartition, UnknownTopic
from catena.types import TopicId
from catena.virtual_log.log import VirtualLog
from catena.wire.codes import Code
from tests.broker.world import World


async def test_partitions_that_another_node_has_added_are_found(world: World) -> None:
    node, other = await world.node(), await world.node()
    await node.node.topics.create("t", 1)
    assert (await find_topic(node.view, "t", None, 0)).partitions == 1
    await other.node.topics.add_partitions("t", 3)
    assert (await find_topic(node.view, "t", None, 2)).partitions == 3
    logs = Logs(node.view, node.node.open_log)
    assert (await logs.find("t", 2)).tp.partition == 2
    with pytest.raises(UnknownPartition):
        await logs.find("t", 3)


async def test_a_topic_that_has_the_name_of_a_deleted_one_is_another(world: World) -> None:
    node, other = await world.node(), await world.node()
    await node.node.topics.create("t", 1)
    old = await find_topic(node.view, "t", None, 0)
    await other.node.topics.delete("t")
    await other.node.topics.create("t", 5)
    with pytest.raises(UnknownTopic):
        await find_topic(node.view, "t", TopicId(old.topic_id), 4)


async def test_the_view_hears_that_a_topic_is_gone(world: World) -> None:
    node = await world.node()
    await node.node.topics.create("t", 1)
    logs = Logs(node.view, node.node.open_log)

    async def gone(log: VirtualLog) -> int:
        raise UnknownTopic(log.tp.topic)

    assert await logs.ask("t", 0, VirtualLog.tail) == 0
    with pytest.raises(UnknownTopic):
        await logs.ask("t", 0, gone)
    assert node.view.cached("t") is None


def test_an_error_has_the_code_that_it_brings_or_that_of_its_kind() -> None:
    assert fault_of(Refused(Code.INVALID_REQUEST, "no")) == (Code.INVALID_REQUEST, "no")
    assert fault_of(UnknownTopic("t")).code == Code.UNKNOWN_TOPIC_OR_PARTITION
