"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords.

Every item of a request has an outcome of its own. A topic that stands twice in a request is refused, since nobody
can say which of the two was meant.

A replication factor has no effect: what is acked is durable in the object store, whose copies are its own affair, and
every node serves every partition. Tools that ask for 3 work all the same, wherever Kafka would take it: up to the
number of brokers alive. Where replicas are to be put by hand, this can't be obeyed, and is refused.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import cast

from catena.broker.base import Client, OpenLog, TopicDefaults
from catena.broker.configs import topic_configs_of
from catena.broker.handling import Logs, Refused, fault_of
from catena.cluster.membership import Membership
from catena.errors import CatenaError, InvalidTopic, TopicExists, UnknownTopic
from catena.runtime.tasks import map_bounded
from catena.types import Offset, TopicId
from catena.virtual_log import topic_configs
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import MAX_PARTITIONS, TopicRecord, Topics, check_name
from catena.wire.codes import Code
from catena.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from catena.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from catena.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from catena.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from catena.wire.requests import Request
from catena.wire.schema import NO_ID

CREATES_AT_ONCE = 32
DELETES_AT_ONCE = 4
"""Each of them deletes many partitions at once."""
DEFAULT = -1
"""A number of partitions or replicas that is left to the broker."""
HIGH_WATERMARK = -1
REPLICAS = 1
"""What every topic is said to have: the one broker that a client talks to."""
NO_ASSIGNMENTS = "every broker serves every partition: replicas can't be assigned to brokers by hand"


class TopicAdmin:
    def __init__(
        self, membership: Membership, topics: Topics, view: TopicView, open_log: OpenLog, settings: TopicDefaults
    ) -> None:
        self._membership = membership
        self._topics = topics
        self._view = view
        self._open_log = open_log
        self._settings = settings

    async def create_topics(self, request: Request, _client: Client) -> CreateTopicsResponse:
        body = cast(CreateTopicsRequest, request.body)
        times = Counter(topic.name for topic in body.topics)

        async def create(asked: CreatableTopic) -> CreatableTopicResult:
            result = CreatableTopicResult(name=asked.name, error_message=None)
            try:
                _check_once(asked.name, times)
                topic = await self._create(asked, body.validate_only)
            except (Refused, CatenaError) as error:
                result.error_code, result.error_message = fault_of(error)
                return result
            result.topic_id = topic.topic_id
            result.num_partitions, result.replication_factor = topic.partitions, REPLICAS
            result.configs = [
                CreatableTopicConfigs(name=config.name, value=config.value, config_source=config.source)
                for config in topic_configs_of(topic.configs)
            ]
            return result

        once = list({topic.name: topic for topic in body.topics}.values())
        return CreateTopicsResponse(topics=await map_bounded(CREATES_AT_ONCE, create, once))

    async def delete_topics(self, request: Request, _client: Client) -> DeleteTopicsResponse:
        body = cast(DeleteTopicsRequest, request.body)
        states = body.topics or [DeleteTopicState(name=name) for name in body.topic_names]
        times = Counter((state.name, state.topic_id) for state in states)

        async def delete(asked: DeleteTopicState) -> DeletableTopicResult:
            result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
            try:
                if times[asked.name, asked.topic_id] > 1:
                    raise Refused(Code.INVALID_REQUEST, "the topic stands twice in the request")
                topic = await self._find(asked)
                result.name, result.topic_id = topic.name, topic.topic_id
                await self._topics.delete(topic.name, topic.topic_id)
                await self._see_the_end_of(topic.name)
            except UnknownTopic as error:
                result.error_code, result.error_message = fault_of(error)
                if asked.topic_id != NO_ID:
                    result.name, result.error_code = None, Code.UNKNOWN_TOPIC_ID
            except (Refused, CatenaError) as error:
                result.error_code, result.error_message = fault_of(error)
            return result

        once = list({(state.name, state.topic_id): state for state in states}.values())
        return DeleteTopicsResponse(responses=await map_bounded(DELETES_AT_ONCE, delete, once))

    async def _see_the_end_of(self, name: str) -> None:
        """So that whoever lists topics now, at this node, does not find it."""
        self._view.forget(name)
        with suppress(CatenaError):  # it is deleted, or has been made again, or the view finds out by itself
            await self._view.read(name)

    async def create_partitions(self, request: Request, _client: Client) -> CreatePartitionsResponse:
        body = cast(CreatePartitionsRequest, request.body)
        times = Counter(topic.name for topic in body.topics)

        async def create(asked: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
            result = CreatePartitionsTopicResult(name=asked.name)
            try:
                _check_once(asked.name, times)
                await self._add_partitions(asked, body.validate_only)
            except (Refused, CatenaError) as error:
                result.error_code, result.error_message = fault_of(error)
            return result

        once = list({topic.name: topic for topic in body.topics}.values())
        return CreatePartitionsResponse(results=await map_bounded(CREATES_AT_ONCE, create, once))

    async def delete_records(self, request: Request, _client: Client) -> DeleteRecordsResponse:
        body = cast(DeleteRecordsRequest, request.body)
        asked = [(topic.name, partition) for topic in body.topics for partition in topic.partitions]
        logs = Logs(self._view, self._open_log)

        async def delete(item: tuple[str, DeleteRecordsPartition]) -> DeleteRecordsPartitionResult:
            name, partition = item
            result = DeleteRecordsPartitionResult(partition_index=partition.partition_index, low_watermark=-1)
            try:
                _check_deletable(await logs.topics.find(name))
                result.low_watermark = await logs.ask(
                    name, partition.partition_index, lambda log: _trim(log, partition.offset)
                )
            except (Refused, CatenaError) as error:
                result.error_code = fault_of(error).code
            return result

        results = iter(await map_bounded(CREATES_AT_ONCE, delete, asked))
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(name=topic.name, partitions=[next(results) for _ in topic.partitions])
                for topic in body.topics
            ]
        )

    async def _create(self, asked: CreatableTopic, validate_only: bool) -> TopicRecord:
        check_name(asked.name)
        if asked.assignments:
            raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, NO_ASSIGNMENTS)
        partitions = self._settings.partitions if asked.num_partitions == DEFAULT else asked.num_partitions
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise Refused(Code.INVALID_PARTITIONS, f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        self._check_replication(asked.replication_factor)
        configs: dict[str, str] = {}
        for config in asked.configs:
            if config.value is None:
                raise Refused(Code.INVALID_CONFIG, f"topic config {config.name!r} has no value")
            if config.name in configs:
                raise Refused(Code.INVALID_REQUEST, f"config {config.name!r} stands twice in the request")
            configs[config.name] = config.value
        configs = topic_configs.validate(configs)
        if validate_only:
            await self._check_absent(asked.name)
            return TopicRecord(asked.name, TopicId(NO_ID), partitions, "", 0, configs=configs)
        topic = await self._topics.create(asked.name, partitions, configs=configs)
        await self._see(topic.name)
        return topic

    def _check_replication(self, factor: int) -> None:
        if factor == DEFAULT:
            return
        brokers = sum(node.serves for node in self._membership.view.nodes)
        if not 1 <= factor <= brokers:
            raise Refused(
                Code.INVALID_REPLICATION_FACTOR,
                f"a replication factor is -1, or from 1 to the number of brokers alive, {brokers}, and not {factor}",
            )

    async def _check_absent(self, name: str) -> None:
        try:
            await self._view.read(name)
        except UnknownTopic:
            return
        raise TopicExists(name)

    async def _find(self, asked: DeleteTopicState) -> TopicRecord:
        if asked.topic_id == NO_ID:
            if asked.name is None:
                raise Refused(Code.INVALID_REQUEST, "neither the name nor the id of the topic is given")
            return await self._view.read(asked.name)
        if asked.name is not None:
            raise Refused(Code.INVALID_REQUEST, "both the name and the id of the topic are given")
        return await self._view.by_id(TopicId(asked.topic_id))

    async def _add_partitions(self, asked: CreatePartitionsTopic, validate_only: bool) -> None:
        if asked.assignments:
            raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, NO_ASSIGNMENTS)
        topic = await self._view.read(asked.name)
        if not topic.partitions < asked.count <= MAX_PARTITIONS:
            raise Refused(
                Code.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {topic.partitions} partitions, and can get more, up to {MAX_PARTITIONS}; "
                f"{asked.count} is no such number",
            )
        if validate_only:
            return
        try:
            await self._topics.add_partitions(topic.name, asked.count, topic.topic_id)
        except InvalidTopic as error:
            raise Refused(Code.INVALID_PARTITIONS, str(error)) from error
        await self._see(topic.name)

    async def _see(self, name: str) -> None:
        """What was changed is known here at once."""
        try:
            await self._view.read(name)
        except CatenaError:
            pass  # it was changed; this node hears of it with its next scan


def _check_deletable(topic: TopicRecord) -> None:
    policy = topic_configs.CATALOGUE["cleanup.policy"]
    if "delete" not in policy.parse(topic.configs.get(policy.name, policy.default)):
        raise Refused(Code.POLICY_VIOLATION, f"the cleanup policy of topic {topic.name!r} is not to delete records")


async def _trim(log: VirtualLog, offset: Offset) -> Offset:
    """Returns where the log starts now. An offset below the start is fine, and does nothing."""
    if offset == HIGH_WATERMARK:
        offset = await log.tail()
    elif offset < 0:
        raise Refused(Code.OFFSET_OUT_OF_RANGE, f"there is no offset {offset}")
    return await log.trim(offset)


def _check_once(name: str, times: Counter[str]) -> None:
    if times[name] > 1:
        raise Refused(Code.INVALID_REQUEST, f"topic {name!r} stands twice in the request")
