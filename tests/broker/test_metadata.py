"""Who is there and who leads what, as clients are told."""

from __future__ import annotations

import asyncio

import pytest

from catena.broker.base import TopicDefaults
from catena.broker.metadata import REFRESH_S, REFRESHES_PER_S
from catena.cluster.placement import NO_NODE, PartitionOf
from catena.cluster.view import READ, WRITE, Address
from catena.errors import StoreUnavailable
from catena.testing.faults import Fail
from catena.types import TopicId
from catena.wire.codes import Code
from catena.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from catena.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from catena.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from catena.wire.schema import NO_ID
from tests.broker.world import MAIN, BrokerNode, World

LAST = 13


async def metadata(
    node: BrokerNode, *names: str, version: int = LAST, create: bool = False, listener: str = "main"
) -> MetadataResponse:
    asked = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
    return await node.ask(request, MetadataResponse, version, listener)


async def one(node: BrokerNode, name: str, version: int = LAST, create: bool = False) -> MetadataResponseTopic:
    (topic,) = (await metadata(node, name, version=version, create=create)).topics
    return topic


def epochs(topic: MetadataResponseTopic) -> list[int]:
    return [partition.leader_epoch for partition in topic.partitions]


class TestWhichTopics:
    async def test_all_are_asked_for_by_an_empty_list_in_v0_and_by_null_later(self, world: World) -> None:
        node = await world.node()
        for name in ("b", "a"):
            await node.node.topics.create(name)
        await node.view.refresh()
        for version, topics, names in (
            (0, [], ["a", "b"]),
            (1, None, ["a", "b"]),
            (1, [], []),
            (13, None, ["a", "b"]),
            (13, [], []),
        ):
            answer = await node.ask(MetadataRequest(topics=topics), MetadataResponse, version)
            assert [topic.name for topic in answer.topics] == names

    async def test_a_topic_is_told_with_its_partitions(self, world: World) -> None:
        node = await world.node()
        created = await node.node.topics.create("t", 3)
        for version in range(LAST + 1):
            topic = await one(node, "t", version)
            assert (topic.error_code, topic.name, topic.is_internal) == (Code.NONE, "t", False)
            assert topic.topic_id == created.topic_id
            assert [part.partition_index for part in topic.partitions] == [0, 1, 2]
            for part in topic.partitions:
                assert (part.error_code, part.leader_id, part.leader_epoch) == (Code.NONE, node.membership.node_id, 1)
                assert part.replica_nodes == part.isr_nodes == [part.leader_id]

    async def test_a_topic_is_found_by_its_id(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        created = await other.node.topics.create("t")
        for topic_id, code, name in (
            (created.topic_id, Code.NONE, "t"),
            (TopicId("9" * 32), Code.UNKNOWN_TOPIC_ID, None),
            (TopicId(NO_ID), Code.UNKNOWN_TOPIC_ID, None),
        ):
            request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
            (topic,) = (await node.ask(request, MetadataResponse)).topics
            assert (topic.error_code, topic.name, topic.topic_id) == (code, name, topic_id)

    async def test_a_name_that_is_null_can_be_sent_in_old_versions_too(self, world: World) -> None:
        node = await world.node()
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id="9" * 32, name=None)])
        (topic,) = (await node.ask(request, MetadataResponse, 10)).topics
        assert (topic.error_code, topic.name) == (Code.UNKNOWN_TOPIC_ID, "")

    async def test_one_that_is_asked_for_twice_is_told_once(self, world: World) -> None:
        node = await world.node()
        answer = await metadata(node, "x", "x", "y")
        assert [topic.name for topic in answer.topics] == ["x", "y"]


class TestCreation:
    @pytest.mark.parametrize(
        ("version", "client", "broker", "created"),
        [
            (0, False, True, True),
            (3, False, True, True),
            (4, False, True, False),
            (4, True, True, True),
            (12, True, False, False),
        ],
    )
    async def test_both_must_agree_and_old_clients_always_do(
        self, world: World, version: int, client: bool, broker: bool, created: bool
    ) -> None:
        node = await world.node(defaults=TopicDefaults(auto_create=broker, partitions=4))
        # In versions before 4 the field is not on the wire, and stays as the reader makes it.
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        if version >= 4:
            request.allow_auto_topic_creation = client
        (topic,) = (await node.ask(request, MetadataResponse, version)).topics
        assert topic.error_code == (Code.NONE if created else Code.UNKNOWN_TOPIC_OR_PARTITION)
        assert len(topic.partitions) == (4 if created else 0)
        await node.view.refresh()
        assert [each.name for each in node.view.all()] == (["new"] if created else [])

    async def test_it_has_a_leader_at_once(self, world: World) -> None:
        node = await world.node()
        topic = await one(node, "new", create=True)
        assert [(part.leader_id, part.leader_epoch) for part in topic.partitions] == [(node.membership.node_id, 1)]

    async def test_of_many_who_ask_at_once_all_are_told_the_same(self, world: World) -> None:
        nodes = [await world.node() for _ in range(3)]
        topics = await asyncio.gather(*(one(node, "new", create=True) for node in nodes * 3))
        assert {topic.error_code for topic in topics} == {Code.NONE}
        assert len({topic.topic_id for topic in topics}) == 1

    @pytest.mark.parametrize("name", ["", "a b", "..", "x" * 250, "ä"])
    async def test_a_name_that_cannot_be_is_told_so(self, world: World, name: str) -> None:
        node = await world.node()
        assert (await one(node, name, create=True)).error_code == Code.INVALID_TOPIC_EXCEPTION


class TestBrokers:
    async def test_clients_are_told_the_addresses_of_their_listener(self, world: World) -> None:
        both = {"main": Address("a", 1), "inside": Address("b", 2)}
        first = await world.node(3, both, rack="r3")
        second = await world.node(7, MAIN)
        bystander = await world.node(1, {"main": Address("c", 3)}, roles=("pipeline",))
        await world.together(first, second, bystander)
        await first.node.topics.create("t", 40)
        for node in (first, second):
            answer = await metadata(node, "t")
            assert answer.controller_id == 3
            assert answer.cluster_id == first.node.cluster_id
            assert [(each.node_id, each.host, each.port, each.rack) for each in answer.brokers] == [
                (3, "a", 1, "r3"),
                (7, "main-host", 9092, None),
            ]
            topic = answer.topics[0]
            leaders = [part.leader_id for part in topic.partitions]
            placement = first.membership.view.placement
            assert leaders == [
                placement.leader(PartitionOf(TopicId(topic.topic_id), number, 40)) for number in range(40)
            ]
            assert leaders.count(3) == leaders.count(7) == 20

    async def test_only_those_that_write_lead_and_those_that_read_are_replicas(self, world: World) -> None:
        writer = await world.node(1, roles=(WRITE,), rack="a")
        readers = [await world.node(2, roles=(READ,), rack="a"), await world.node(3, roles=(READ,), rack="b")]
        both = await world.node(4)
        await world.together(writer, *readers, both)
        await writer.node.topics.create("t", 40)
        for node in (writer, *readers, both):
            answer = await metadata(node, "t")
            assert [broker.node_id for broker in answer.brokers] == [1, 2, 3, 4]
            found = {(part.leader_id, tuple(part.replica_nodes)) for part in answer.topics[0].partitions}
            assert {leader for leader, _ in found} == {1, 4}
            assert {replicas for leader, replicas in found if leader == 4} == {(4,)}
            # Clients of a rack are sent to its reader, others to any of the three.
            assert {frozenset(replicas) for leader, replicas in found if leader == 1} <= {
                frozenset((1, 2, 3)),
                frozenset((1, 2, 3, 4)),
            }
            assert all(part.isr_nodes == part.replica_nodes for part in answer.topics[0].partitions)

    async def test_where_nobody_writes_there_is_no_leader(self, world: World) -> None:
        reader = await world.node(roles=(READ,))
        await reader.node.topics.create("t", 2)
        for part in (await one(reader, "t")).partitions:
            assert (part.error_code, part.leader_id, part.replica_nodes) == (Code.LEADER_NOT_AVAILABLE, NO_NODE, [])

    async def test_a_broker_that_cannot_be_reached_is_not_listed_and_leads_nothing(self, world: World) -> None:
        first = await world.node(3, {"main": Address("a", 1), "inside": Address("b", 2)})
        second = await world.node(7, MAIN)
        await world.together(first, second)
        await first.node.topics.create("t", 40)
        answer = await metadata(first, "t", listener="inside")
        assert [(each.node_id, each.host) for each in answer.brokers] == [(3, "b")]
        assert {part.leader_id for part in answer.topics[0].partitions} == {3}

    async def test_leaders_move_when_a_node_leaves(self, world: World) -> None:
        first, second = await world.node(3), await world.node(7)
        await world.together(first, second)
        await first.node.topics.create("t", 40)
        assert {part.leader_id for part in (await one(first, "t")).partitions} == {3, 7}
        await second.membership.close()
        while len(first.membership.view.nodes) > 1:
            await first.membership.changed(first.membership.view.revision)
        answer = await metadata(first, "t")
        assert [each.node_id for each in answer.brokers] == [3]
        assert {part.leader_id for part in answer.topics[0].partitions} == {3}

    async def test_where_nobody_can_be_reached_there_is_no_leader(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        answer = await metadata(node, "t", listener="no such")
        assert (answer.brokers, answer.controller_id) == ([], -1)
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.leader_id, part.replica_nodes) == (Code.LEADER_NOT_AVAILABLE, -1, [])

    async def test_operations_are_told_to_those_who_ask(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        for asked, of_topic, of_cluster in ((False, -(2**31), -(2**31)), (True, 0b1101_1111_1000, 0b1_1111_1010_0000)):
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name="t")],
                include_topic_authorized_operations=asked,
                include_cluster_authorized_operations=asked,
            )
            answer = await node.ask(request, MetadataResponse, 8)
            assert answer.topics[0].topic_authorized_operations == of_topic
            assert answer.cluster_authorized_operations == of_cluster

    async def test_the_cluster_is_described(self, world: World) -> None:
        node = await world.node(5, rack="r")
        answer = await node.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True), DescribeClusterResponse
        )
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (Code.NONE, node.node.cluster_id, 5)
        assert [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers] == [
            (5, "main-host", 9092, "r")
        ]
        assert answer.cluster_authorized_operations == 0b1_1111_1010_0000

    @pytest.mark.parametrize(
        ("endpoint", "code"), [(2, Code.MISMATCHED_ENDPOINT_TYPE), (3, Code.UNSUPPORTED_ENDPOINT_TYPE)]
    )
    async def test_only_brokers_can_be_described(self, world: World, endpoint: int, code: Code) -> None:
        node = await world.node()
        answer = await node.ask(DescribeClusterRequest(endpoint_type=endpoint), DescribeClusterResponse)
        assert (answer.error_code, answer.brokers) == (code, [])
        assert answer.error_message


class TestEpochs:
    async def test_nodes_agree_a_while_after_a_change(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await node.node.topics.create("t", 2)
        assert epochs(await one(node, "t")) == epochs(await one(other, "t")) == [1, 1]
        await (await node.node.log("t", 1)).reconfigure("memory")
        assert epochs(await one(node, "t")) == [1, 2]
        assert epochs(await one(other, "t")) == [1, 1]
        world.clock.leap(REFRESH_S)
        assert epochs(await one(other, "t")) == [1, 2]

    async def test_chains_are_read_once_and_then_when_they_are_old(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 20)
        for reads in (20, 0):
            node.faults.taken.clear()
            await asyncio.gather(*(one(node, "t") for _ in range(5)))
            assert node.faults.taken["get chain"] == reads
        world.clock.leap(REFRESH_S)
        await one(node, "t")
        assert node.faults.taken["get chain"] == 20

    async def test_many_partitions_are_looked_at_less_often(self, world: World) -> None:
        node = await world.node()
        count = int(REFRESHES_PER_S * REFRESH_S * 2)
        await node.node.topics.create("t", count)
        await one(node, "t")
        node.faults.taken.clear()
        world.clock.leap(REFRESH_S)
        await one(node, "t")
        assert node.faults.taken["get chain"] == 0
        world.clock.leap(REFRESH_S)
        await one(node, "t")
        assert node.faults.taken["get chain"] == count

    async def test_what_was_seen_last_is_told_while_the_store_is_away(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 3)
        await node.view.read("t")
        for _ in range(3):
            node.faults.at("get chain", Fail(StoreUnavailable("away")))
            topic = await one(node, "t")
            assert (topic.error_code, epochs(topic)[0]) == (Code.NONE, -1)
        assert epochs(await one(node, "t")) == [1, 1, 1]
        world.clock.leap(REFRESH_S)
        node.faults.at("get chain", Fail(StoreUnavailable("away")))
        assert epochs(await one(node, "t")) == [1, 1, 1]

    async def test_a_name_that_cannot_be_looked_up_is_not_called_unknown(self, world: World) -> None:
        node = await world.node()
        node.faults.at("get topic", Fail(StoreUnavailable("away")))
        assert (await one(node, "t")).error_code == Code.KAFKA_STORAGE_ERROR

    async def test_a_topic_that_was_deleted_elsewhere_is_noticed(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await other.node.topics.create("t", 2)
        await node.view.read("t")
        await node.view.close()  # it hears of nothing any more
        await other.node.topics.delete("t")
        assert node.view.cached("t") is not None
        topic = await one(node, "t")
        assert topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert node.view.cached("t") is None


class TestPages:
    async def page(
        self, node: BrokerNode, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> DescribeTopicPartitionsResponse:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
        )
        return await node.ask(request, DescribeTopicPartitionsResponse)

    async def node(self, world: World) -> BrokerNode:
        node = await world.node()
        for name, partitions in (("a", 3), ("b", 2), ("c", 4)):
            await node.node.topics.create(name, partitions)
        await node.view.refresh()
        return node

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 8, 9, 10, 0])
    @pytest.mark.parametrize("names", [(), ("c", "a", "b", "a")])
    async def test_pages_together_are_everything_once(self, world: World, limit: int, names: tuple[str, ...]) -> None:
        node = await self.node(world)
        found: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        for _ in range(10):
            page = await self.page(node, *names, limit=limit, cursor=cursor)
            parts = [(topic.name, part.partition_index) for topic in page.topics for part in topic.partitions]
            assert 1 <= len(parts) <= max(1, limit)
            found += parts
            if page.next_cursor is None:
                break
            cursor = (page.next_cursor.topic_name, page.next_cursor.partition_index)
        assert found == [(name, number) for name, count in (("a", 3), ("b", 2), ("c", 4)) for number in range(count)]

    async def test_a_partition_is_told_as_metadata_does(self, world: World) -> None:
        node = await self.node(world)
        await (await node.node.log("a", 1)).reconfigure("memory")
        (topic,) = (await self.page(node, "a")).topics
        assert (topic.error_code, topic.topic_authorized_operations) == (Code.NONE, 0b1101_1111_1000)
        assert [(part.leader_id, part.leader_epoch, part.isr_nodes) for part in topic.partitions] == [
            (0, 1, [0]),
            (0, 2, [0]),
            (0, 1, [0]),
        ]

    async def test_a_topic_that_is_not_there_is_told_so_unless_the_cursor_names_it(self, world: World) -> None:
        node = await self.node(world)
        page = await self.page(node, "b", "aa", "a b")
        assert [(topic.name, topic.error_code) for topic in page.topics] == [
            ("a b", Code.INVALID_TOPIC_EXCEPTION),
            ("aa", Code.UNKNOWN_TOPIC_OR_PARTITION),
            ("b", Code.NONE),
        ]
        page = await self.page(node, "b", "aa", cursor=("aa", 1))
        assert [(topic.name, topic.error_code) for topic in page.topics] == [("b", Code.NONE)]

    async def test_a_cursor_that_cannot_be_is_refused(self, world: World) -> None:
        node = await self.node(world)
        (topic,) = (await self.page(node, "a", cursor=("a", -1))).topics
        assert topic.error_code == Code.INVALID_REQUEST
