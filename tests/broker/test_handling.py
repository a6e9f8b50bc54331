"""The log that a request names: as this node sees it, and as the store has it where that may be old."""

from __future__ import annotations

import pytest

from catena.broker.handling import READS_MAX, Logs, Refused, TopicLookup, fault_of
from catena.errors import InvalidTopic, StoreUnavailable, UnknownPartition, UnknownTopic
from catena.testing.faults import Fail
from catena.types import TopicId
from catena.virtual_log.log import VirtualLog
from catena.wire.codes import Code
from tests.broker.world import World


async def test_partitions_that_another_node_has_added_are_found(world: World) -> None:
    node, other = await world.node(), await world.node()
    await node.node.topics.create("t", 1)
    assert (await TopicLookup(node.view).find("t", None, 0)).partitions == 1
    await other.node.topics.add_partitions("t", 3)
    assert (await TopicLookup(node.view).find("t", None, 2)).partitions == 3
    logs = Logs(node.view, node.node.open_log)
    assert (await logs.find("t", 2)).tp.partition == 2
    with pytest.raises(UnknownPartition):
        await logs.find("t", 3)


async def test_a_topic_that_has_the_name_of_a_deleted_one_is_another(world: World) -> None:
    node, other = await world.node(), await world.node()
    await node.node.topics.create("t", 1)
    old = await TopicLookup(node.view).find("t", None, 0)
    await other.node.topics.delete("t")
    await other.node.topics.create("t", 5)
    with pytest.raises(UnknownTopic):
        await TopicLookup(node.view).find("t", TopicId(old.topic_id), 4)


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


class TestLookup:
    """Of many topics at once. What the store was asked is counted by its steps."""

    async def test_of_many_names_that_are_not_there_few_are_read(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        lookup = TopicLookup(node.view)
        read, scanned = node.faults.taken["get topic"], node.faults.taken["scan topic"]
        for number in range(5_000):
            with pytest.raises(UnknownTopic, match=f"'t{number}'"):
                await lookup.find(f"t{number}")
        assert node.faults.taken["get topic"] - read == READS_MAX
        assert 1 <= node.faults.taken["scan topic"] - scanned < 10
        # A topic that another node made in the meantime: this request is decided, the next one finds it.
        await other.node.topics.create("t7", 1)
        assert (await TopicLookup(node.view).find("t7")).name == "t7"

    async def test_what_is_there_is_found_among_many_that_are_not(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        made = await other.node.topics.create("there", 3)
        lookup = TopicLookup(node.view)
        for number in range(READS_MAX):
            with pytest.raises(UnknownTopic):
                await lookup.find(f"t{number}")
        node.view.forget("there")
        assert (await lookup.find("there", None, 2)).topic_id == made.topic_id
        assert (await lookup.find("", made.topic_id, 2)).name == "there"
        assert (await lookup.find("there", None, 3)).partitions == 3  # it is for the caller to look
        with pytest.raises(InvalidTopic):
            await lookup.find("no/name")
        with pytest.raises(InvalidTopic):
            await lookup.find("")

    async def test_partitions_that_are_not_there_are_read_a_few_times(self, world: World) -> None:
        node = await world.node()
        topic = await node.node.topics.create("t", 1)
        lookup = TopicLookup(node.view)
        read = node.faults.taken["get topic"]
        for number in range(1, 1_000):
            assert (await lookup.find("t", None, number)).partitions == 1
            assert (await lookup.find("", topic.topic_id, number)).partitions == 1
        assert node.faults.taken["get topic"] - read <= READS_MAX

    async def test_ids_that_are_not_there_are_one_list(self, world: World) -> None:
        node = await world.node()
        lookup = TopicLookup(node.view)
        read, scanned = node.faults.taken["get topic"], node.faults.taken["scan topic"]
        for number in range(5_000):
            with pytest.raises(UnknownTopic):
                await lookup.find("", f"{number:032x}")
        assert node.faults.taken["get topic"] == read
        assert 1 <= node.faults.taken["scan topic"] - scanned < 10

    async def test_a_store_that_is_away_is_not_asked_for_each(self, world: World) -> None:
        node = await world.node()
        lookup = TopicLookup(node.view)
        node.faults.at("scan topic", Fail(StoreUnavailable("down")))
        for number in range(1_000):
            with pytest.raises(StoreUnavailable, match="down"):
                await lookup.find("", f"{number:032x}")
        with pytest.raises(StoreUnavailable) as raised:
            await lookup.find("", "f" * 32)
        assert len(raised.traceback) < 20
        with pytest.raises(UnknownTopic):
            await TopicLookup(node.view).find("", "f" * 32)


def test_an_error_has_the_code_that_it_brings_or_that_of_its_kind() -> None:
    assert fault_of(Refused(Code.INVALID_REQUEST, "no")) == (Code.INVALID_REQUEST, "no")
    assert fault_of(UnknownTopic("t")).code == Code.UNKNOWN_TOPIC_OR_PARTITION
