"""Topics are created, grown, emptied and deleted, each with an outcome of its own."""

from __future__ import annotations

import asyncio

import pytest

from catena.broker.base import TopicDefaults
from catena.errors import OutcomeUnknown, StoreUnavailable, UnknownTopic
from catena.testing.contracts.loglet import make_entry
from catena.testing.faults import Fail, Stall
from catena.virtual_log.topics import MAX_PARTITIONS
from catena.wire.codes import Code
from catena.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from catena.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from catena.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from catena.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from catena.wire.schema import NO_ID
from tests.broker.world import BrokerNode, World


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def create(node: BrokerNode, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return (await node.ask(request, CreateTopicsResponse)).topics


async def is_there(node: BrokerNode, name: str) -> bool:
    try:
        await node.node.topics.get(name)
    except UnknownTopic:
        return False
    return True


class TestCreateTopics:
    async def test_a_topic_is_there_at_once_as_it_was_asked_for(self, world: World) -> None:
        node = await world.node(defaults=TopicDefaults(partitions=6))
        results = await create(node, topic("a", 3, 1, retention_ms="1000"), topic("b", -1, -1))
        for result, name, partitions in zip(results, ("a", "b"), (3, 6), strict=True):
            record = await node.node.topics.get(name)
            assert (result.error_code, result.error_message) == (Code.NONE, None)
            assert (result.name, result.topic_id) == (name, record.topic_id)
            assert result.num_partitions == record.partitions == partitions
            assert result.replication_factor == 1
            assert node.view.cached(name) == record
        assert (await node.node.topics.get("a")).configs == {"retention.ms": "1000"}
        shown = {config.name: (config.value, config.config_source) for config in results[0].configs or []}
        assert shown["retention.ms"] == ("1000", 1)
        assert shown["cleanup.policy"] == ("delete", 5)

    @pytest.mark.parametrize("version", range(2, 8))
    async def test_every_version_is_answered(self, world: World, version: int) -> None:
        node = await world.node()
        request = CreateTopicsRequest(topics=[topic("t")])
        (result,) = (await node.ask(request, CreateTopicsResponse, version)).topics
        assert result.error_code == Code.NONE

    @pytest.mark.parametrize(
        ("asked", "code", "says"),
        [
            (topic("a b"), Code.INVALID_TOPIC_EXCEPTION, "a b"),
            (topic("t", 0), Code.INVALID_PARTITIONS, "not 0"),
            (topic("t", -2), Code.INVALID_PARTITIONS, "not -2"),
            (topic("t", MAX_PARTITIONS + 1), Code.INVALID_PARTITIONS, str(MAX_PARTITIONS)),
            (topic("t", 1, 0), Code.INVALID_REPLICATION_FACTOR, "not 0"),
            (topic("t", 1, 3), Code.INVALID_REPLICATION_FACTOR, "alive, 2"),
            (topic("t", 1, 1, retention_ms="soon"), Code.INVALID_CONFIG, "retention.ms"),
            (topic("t", 1, 1, no_such="1"), Code.INVALID_CONFIG, "no.such"),
            (topic("t", 1, 1, retention_ms=None), Code.INVALID_CONFIG, "retention.ms"),
            (topic("t", 1, 1, diskless_enable="false"), Code.INVALID_CONFIG, "later version"),
            (topic("there"), Code.TOPIC_ALREADY_EXISTS, "there"),
        ],
    )
    @pytest.mark.parametrize("validate_only", [False, True])
    async def test_what_cannot_be_is_refused_with_a_reason(
        self, world: World, asked: CreatableTopic, code: Code, says: str, validate_only: bool
    ) -> None:
        node, other = await world.node(), await world.node()
        await world.together(node, other)
        await other.node.topics.create("there")
        (result,) = await create(node, asked, validate_only=validate_only)
        assert result.error_code == code
        assert says in (result.error_message or "")
        assert not await is_there(node, "t")

    async def test_a_replication_factor_up_to_the_number_of_brokers_is_taken(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.together(node, other)
        (result,) = await create(node, topic("t", 1, 2))
        assert (result.error_code, result.replication_factor) == (Code.NONE, 1)

    async def test_replicas_are_not_assigned_by_hand(self, world: World) -> None:
        node = await world.node()
        asked = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[0])],
        )
        (result,) = await create(node, asked)
        assert result.error_code == Code.INVALID_REPLICA_ASSIGNMENT
        assert "by hand" in (result.error_message or "")

    async def test_one_that_is_only_validated_is_not_created(self, world: World) -> None:
        node = await world.node()
        (result,) = await create(node, topic("t", 5), validate_only=True)
        assert (result.error_code, result.num_partitions, result.topic_id) == (Code.NONE, 5, NO_ID)
        assert not await is_there(node, "t")

    async def test_what_stands_twice_in_a_request_is_refused_and_the_rest_is_not(self, world: World) -> None:
        node = await world.node()
        results = await create(node, topic("t"), topic("u"), topic("t", 2))
        assert [(result.name, result.error_code) for result in results] == [
            ("t", Code.INVALID_REQUEST),
            ("u", Code.NONE),
        ]
        assert not await is_there(node, "t")
        configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("1", "2")]
        doubled = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
        (result,) = await create(node, doubled)
        assert result.error_code == Code.INVALID_REQUEST

    async def test_a_store_that_is_away_is_told_as_such(self, world: World) -> None:
        node = await world.node()
        node.faults.at("put topic", Fail(StoreUnavailable("away")))
        results = await create(node, topic("t"))
        assert results[0].error_code == Code.NOT_ENOUGH_REPLICAS
        node.faults.at("put topic", Fail(OutcomeUnknown("lost"), applied=True))
        results = await create(node, topic("t"))
        assert results[0].error_code == Code.NONE


class TestDeleteTopics:
    async def delete(self, node: BrokerNode, *states: DeleteTopicState) -> list[DeletableTopicResult]:
        request = DeleteTopicsRequest(topics=list(states))
        return (await node.ask(request, DeleteTopicsResponse)).responses

    @pytest.mark.parametrize("version", range(1, 6))
    async def test_by_name(self, world: World, version: int) -> None:
        node = await world.node()
        await node.node.topics.create("t", 3)
        for code in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION):
            answer = await node.ask(DeleteTopicsRequest(topic_names=["t"]), DeleteTopicsResponse, version)
            assert [(each.name, each.error_code) for each in answer.responses] == [("t", code)]
            assert node.view.cached("t") is None

    async def test_by_id_and_not_another_topic_that_has_the_name_now(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        old = await other.node.topics.create("t")
        await node.view.read("t")
        await node.view.close()  # it hears of nothing any more
        await other.node.topics.delete("t")
        new = await other.node.topics.create("t")
        (result,) = await self.delete(node, DeleteTopicState(topic_id=old.topic_id))
        assert (result.error_code, result.name) == (Code.UNKNOWN_TOPIC_ID, None)
        assert (await node.node.topics.get("t")).topic_id == new.topic_id
        (result,) = await self.delete(node, DeleteTopicState(topic_id=new.topic_id))
        assert (result.error_code, result.name, result.topic_id) == (Code.NONE, "t", new.topic_id)
        assert not await is_there(node, "t")

    @pytest.mark.parametrize("by_id", [True, False])
    async def test_nor_one_that_gets_the_name_in_the_middle(self, world: World, by_id: bool) -> None:
        node, other = await world.node(), await world.node()
        old = await other.node.topics.create("t")
        await node.view.read("t")
        stall = node.faults.at("get topic", Stall(), nth=1 if by_id else 2)
        asked = DeleteTopicState(topic_id=old.topic_id) if by_id else DeleteTopicState(name="t")
        deleting = asyncio.ensure_future(self.delete(node, asked))
        await stall.reached.wait()
        await other.node.topics.delete("t")
        new = await other.node.topics.create("t")
        stall.let_go()
        (result,) = await deleting
        assert result.error_code == (Code.UNKNOWN_TOPIC_ID if by_id else Code.UNKNOWN_TOPIC_OR_PARTITION)
        assert await other.node.topics.get("t") == new

    async def test_what_is_not_clear_is_refused(self, world: World) -> None:
        node = await world.node()
        kept = await node.node.topics.create("t")
        states = [
            DeleteTopicState(name="t", topic_id=kept.topic_id),
            DeleteTopicState(),
            DeleteTopicState(name="t"),
            DeleteTopicState(name="t"),
        ]
        results = await self.delete(node, *states)
        assert [result.error_code for result in results] == [Code.INVALID_REQUEST] * 3
        assert all(result.error_message for result in results)
        assert await is_there(node, "t")


class TestCreatePartitions:
    async def grow(
        self, node: BrokerNode, name: str, count: int, validate_only: bool = False, by_hand: bool = False
    ) -> CreatePartitionsTopicResult:
        assignments = [CreatePartitionsAssignment(broker_ids=[0])] if by_hand else None
        asked = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        request = CreatePartitionsRequest(topics=[asked], validate_only=validate_only)
        (result,) = (await node.ask(request, CreatePartitionsResponse)).results
        return result

    async def test_a_topic_grows(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 2)
        assert (await self.grow(node, "t", 5, validate_only=True)).error_code == Code.NONE
        assert (await node.node.topics.get("t")).partitions == 2
        assert (await self.grow(node, "t", 5)).error_code == Code.NONE
        assert (await node.node.topics.get("t")).partitions == 5
        cached = node.view.cached("t")
        assert cached is not None
        assert cached.partitions == 5

    @pytest.mark.parametrize("validate_only", [False, True])
    async def test_what_cannot_be_is_refused_with_a_reason(self, world: World, validate_only: bool) -> None:
        node = await world.node()
        await node.node.topics.create("t", 2)
        for name, count, by_hand, code in (
            ("t", 2, False, Code.INVALID_PARTITIONS),
            ("t", 1, False, Code.INVALID_PARTITIONS),
            ("t", -1, False, Code.INVALID_PARTITIONS),
            ("t", MAX_PARTITIONS + 1, False, Code.INVALID_PARTITIONS),
            ("t", 3, True, Code.INVALID_REPLICA_ASSIGNMENT),
            ("u", 3, False, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            result = await self.grow(node, name, count, validate_only, by_hand)
            assert result.error_code == code
            assert result.error_message
        assert (await node.node.topics.get("t")).partitions == 2

    async def test_what_stands_twice_in_a_request_is_refused(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 2)
        asked = [CreatePartitionsTopic(name="t", count=count, assignments=None) for count in (3, 4)]
        answer = await node.ask(CreatePartitionsRequest(topics=asked), CreatePartitionsResponse)
        assert [result.error_code for result in answer.results] == [Code.INVALID_REQUEST]


class TestDeleteRecords:
    async def delete(self, node: BrokerNode, name: str, number: int, offset: int) -> DeleteRecordsPartitionResult:
        partition = DeleteRecordsPartition(partition_index=number, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[partition])])
        (topic,) = (await node.ask(request, DeleteRecordsResponse)).topics
        (result,) = topic.partitions
        return result

    async def test_a_log_is_emptied_from_its_start(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 2)
        log = await node.node.log("t", 1)
        await log.append(make_entry(*"abcdef"))
        for offset, code, low in (
            (2, Code.NONE, 2),
            (1, Code.NONE, 2),
            (7, Code.OFFSET_OUT_OF_RANGE, -1),
            (-2, Code.OFFSET_OUT_OF_RANGE, -1),
            (-1, Code.NONE, 6),
        ):
            result = await self.delete(node, "t", 1, offset)
            assert (result.partition_index, result.error_code, result.low_watermark) == (1, code, low)
        assert await log.start() == 6
        assert await (await node.node.log("t", 0)).start() == 0

    async def test_a_partition_that_is_not_there_is_told_so(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 2)
        for name, number in (("t", 2), ("t", -1), ("u", 0)):
            result = await self.delete(node, name, number, -1)
            assert (result.error_code, result.low_watermark) == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)

    async def test_a_partition_that_another_node_has_added_is_found(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await other.node.topics.create("t", 1)
        await node.view.read("t")
        await node.view.close()  # it hears of nothing any more
        await other.node.topics.add_partitions("t", 2)
        assert (await self.delete(node, "t", 1, -1)).error_code == Code.NONE

    async def test_a_topic_that_is_only_compacted_keeps_its_records(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", configs={"cleanup.policy": "compact"})
        assert (await self.delete(node, "t", 0, -1)).error_code == Code.POLICY_VIOLATION
        await node.node.topics.alter_configs("t", {"cleanup.policy": "compact,delete"})
        await node.view.read("t")
        assert (await self.delete(node, "t", 0, -1)).error_code == Code.NONE
