"""Metadata, DescribeCluster, DescribeTopicPartitions: who is there, and who leads what.

Any node could serve any diskless partition; which do is up to their roles. The leader that a client is told is a
rendezvous hash over the nodes that write and that it can reach: those that have a listener of the name through which it
came. A broker without one is not listed there and leads nothing there. Replicas and in-sync replicas are the leader
alone, or with those that fetches are sent to, see `reachable`: copies are the object store's affair.

A leader epoch is the epoch of the last link of a partition's chain, which is read once and then looked at again when
it is older than `REFRESH_S`. So nodes agree within that time; where there are many partitions the time is longer, so
that a node never reads more than `REFRESHES_PER_S` chains in a second for it. A chain that can't be read in time
leaves the epoch as it was seen last, or -1, which tells clients that none is known. Metadata is answered without the
stores, if they are away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, cast

from catena.broker.base import Client, OpenLog, TopicDefaults
from catena.broker.error_codes import code_of
from catena.broker.handling import TopicLookup
from catena.broker.reachable import Reach, Reachable
from catena.cluster.membership import Membership
from catena.cluster.placement import NO_NODE, PartitionOf
from catena.errors import CatenaError, RetryLater, UnknownTopic
from catena.runtime import Clock
from catena.runtime.tasks import map_bounded
from catena.types import TopicId
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import MAX_PARTITIONS, TopicRecord, Topics
from catena.wire.codes import Code
from catena.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from catena.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from catena.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from catena.wire.requests import Request
from catena.wire.schema import NO_ID

REFRESH_S = 5.0
"""How old the chain that an epoch is taken from may be, where there are few partitions."""
REFRESHES_PER_S = 500
REFRESH_MAX_S = 5.0
"""How long a request waits for chains to be read."""
AT_ONCE = 64
NULL_NAME_SINCE = 12
MAX_PARTITIONS_PER_PAGE = 2000
BROKERS = 1
CONTROLLERS = 2

# Bits are Kafka's operations: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action,
# 10 describe configs, 11 alter configs, 12 idempotent write. There are no ACLs: everybody may do everything.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED_FOR = -(1 << 31)


class _Unknown(NamedTuple):
    """A topic that was asked for and can't be told."""

    name: str | None
    topic_id: str
    code: Code


class Metadata:
    def __init__(
        self,
        cluster_id: str,
        membership: Membership,
        topics: Topics,
        view: TopicView,
        open_log: OpenLog,
        clock: Clock,
        settings: TopicDefaults,
    ) -> None:
        self._cluster_id = cluster_id
        self._reach = Reach(membership)
        self._topics = topics
        self._view = view
        self._open_log = open_log
        self._clock = clock
        self._settings = settings
        self._refreshing = asyncio.Lock()
        self._partitions = 0
        self._partitions_at = -1

    async def metadata(self, request: Request, client: Client) -> MetadataResponse:
        body = cast(MetadataRequest, request.body)
        found: Sequence[TopicRecord | _Unknown]
        if body.topics is None or (not body.topics and request.version == 0):
            found = self._view.all()
        else:
            asked = _without_doubles(body.topics)
            lookup = TopicLookup(self._view)
            found = await map_bounded(AT_ONCE, lambda topic: self._find(topic, body, lookup), asked)
        logs = {topic.topic_id: self._logs(topic) for topic in found if isinstance(topic, TopicRecord)}
        deleted = await self._refresh([log for each in logs.values() for log in each])
        reachable = self._reach.by(client.listener)
        topic_operations = TOPIC_OPERATIONS if body.include_topic_authorized_operations else NOT_ASKED_FOR
        topics = []
        for topic in found:
            if isinstance(topic, TopicRecord) and topic.topic_id in deleted:
                topic = _Unknown(topic.name, topic.topic_id, Code.UNKNOWN_TOPIC_OR_PARTITION)
            if isinstance(topic, TopicRecord):
                topics.append(_topic(topic, logs[topic.topic_id], reachable, topic_operations))
            else:
                name = topic.name if request.version >= NULL_NAME_SINCE else topic.name or ""
                topics.append(MetadataResponseTopic(error_code=topic.code, name=name, topic_id=topic.topic_id))
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node.node_id, host=address.host, port=address.port, rack=node.rack)
                for node, address in reachable.brokers
            ],
            cluster_id=self._cluster_id,
            controller_id=reachable.controller,
            topics=topics,
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED_FOR
            ),
        )

    async def describe_cluster(self, request: Request, client: Client) -> DescribeClusterResponse:
        body = cast(DescribeClusterRequest, request.body)
        if body.endpoint_type != BROKERS:
            if body.endpoint_type == CONTROLLERS:
                code, message = Code.MISMATCHED_ENDPOINT_TYPE, "these are brokers: there are no controllers to describe"
            else:
                code, message = Code.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {body.endpoint_type}"
            return DescribeClusterResponse(
                error_code=code, error_message=message, endpoint_type=body.endpoint_type, cluster_id=self._cluster_id
            )
        reachable = self._reach.by(client.listener)
        return DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=reachable.controller,
            brokers=[
                DescribeClusterBroker(broker_id=node.node_id, host=address.host, port=address.port, rack=node.rack)
                for node, address in reachable.brokers
            ],
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED_FOR
            ),
        )

    async def describe_topic_partitions(self, request: Request, client: Client) -> DescribeTopicPartitionsResponse:
        """A page: topics by name, up to a number of partitions; `next_cursor` says where the next one begins."""
        body = cast(DescribeTopicPartitionsRequest, request.body)
        cursor = body.cursor
        if cursor is not None and cursor.partition_index < 0:
            return _refused_page(body, Code.INVALID_REQUEST)
        first = cursor.topic_name if cursor is not None else ""
        left = max(1, min(body.response_partition_limit, MAX_PARTITIONS_PER_PAGE))
        response, lookup = DescribeTopicPartitionsResponse(), TopicLookup(self._view)
        reachable = self._reach.by(client.listener)
        names = sorted({topic.name for topic in body.topics}) or [topic.name for topic in self._view.all()]
        for name in names:
            if name < first:
                continue
            if left == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            begin = cursor.partition_index if cursor is not None and name == first else 0
            topic = await _find_existing(name, lookup)
            logs: list[VirtualLog] = []
            if isinstance(topic, TopicRecord):
                logs = self._logs(topic, begin, begin + left)
                if await self._refresh(logs):
                    topic = _Unknown(name, NO_ID, Code.UNKNOWN_TOPIC_OR_PARTITION)
            if isinstance(topic, _Unknown):
                # One that was deleted since the last page is not worth an error.
                if cursor is None or name != first:
                    response.topics.append(
                        DescribeTopicPartitionsResponseTopic(error_code=topic.code, name=name, topic_id=topic.topic_id)
                    )
                continue
            response.topics.append(_page_of(topic, logs, reachable))
            left -= len(logs)
            if begin + len(logs) < topic.partitions:
                response.next_cursor = Cursor(topic_name=name, partition_index=begin + len(logs))
                break
        return response

    async def _find(
        self, asked: MetadataRequestTopic, body: MetadataRequest, lookup: TopicLookup
    ) -> TopicRecord | _Unknown:
        if asked.topic_id != NO_ID or asked.name is None:
            topic_id = TopicId(asked.topic_id)
            try:
                return await lookup.find("", topic_id)
            except UnknownTopic:
                return _Unknown(None, topic_id, Code.UNKNOWN_TOPIC_ID)
            except CatenaError as error:
                return _Unknown(None, topic_id, _code_of(error))
        if not body.allow_auto_topic_creation:
            return await _find_existing(asked.name, lookup)
        try:
            return await lookup.find_or_create(asked.name, self._topics, self._settings)
        except CatenaError as error:
            return _Unknown(asked.name, NO_ID, _code_of(error))

    def _logs(self, topic: TopicRecord, begin: int = 0, end: int = MAX_PARTITIONS) -> list[VirtualLog]:
        return [self._open_log(topic, number) for number in range(begin, min(end, topic.partitions))]

    async def _refresh(self, logs: Sequence[VirtualLog]) -> dict[TopicId, None]:
        """See to it that the epochs of these logs are not old; returns the topics that turned out to be deleted."""
        deleted: dict[TopicId, None] = {}

        async def refresh(log: VirtualLog) -> None:
            try:
                await log.refresh()
            except UnknownTopic:
                deleted[log.tp.topic_id] = None
                self._view.forget(log.tp.topic)

        def old() -> list[VirtualLog]:
            since = self._clock.monotonic() - self._refresh_s()
            return [log for log in logs if log.refreshed_at < since]

        if old():
            try:
                # One request at a time: those that ask for the same find it done.
                async with asyncio.timeout(REFRESH_MAX_S), self._refreshing:
                    await map_bounded(AT_ONCE, refresh, old())
            except (TimeoutError, CatenaError):
                pass  # what was seen last is told; the next request tries again
        return deleted

    def _refresh_s(self) -> float:
        if self._partitions_at != self._view.revision:
            self._partitions_at = self._view.revision
            self._partitions = sum(topic.partitions for topic in self._view.all())
        return max(REFRESH_S, self._partitions / REFRESHES_PER_S)


def _without_doubles(topics: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    return list({(topic.topic_id, topic.name): topic for topic in topics}.values())


async def _find_existing(name: str, lookup: TopicLookup) -> TopicRecord | _Unknown:
    try:
        return await lookup.find(name)
    except CatenaError as error:
        return _Unknown(name, NO_ID, _code_of(error))


def _code_of(error: CatenaError) -> Code:
    """A store that is away makes clients ask again soon, whichever node; other codes would make some wait for long."""
    return Code.KAFKA_STORAGE_ERROR if isinstance(error, RetryLater) else code_of(error)


def _refused_page(body: DescribeTopicPartitionsRequest, code: Code) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name) for topic in body.topics]
    )


def _topic(
    topic: TopicRecord, logs: Sequence[VirtualLog], reachable: Reachable, operations: int
) -> MetadataResponseTopic:
    partitions = []
    for number, log in enumerate(logs):
        nodes = reachable.replicas(PartitionOf(topic.topic_id, number, topic.partitions))
        partitions.append(
            MetadataResponsePartition(
                error_code=Code.NONE if nodes else Code.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=nodes[0] if nodes else NO_NODE,
                leader_epoch=log.seen_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _page_of(
    topic: TopicRecord, logs: Sequence[VirtualLog], reachable: Reachable
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for log in logs:
        nodes = reachable.replicas(PartitionOf(topic.topic_id, log.tp.partition, topic.partitions))
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=Code.NONE if nodes else Code.LEADER_NOT_AVAILABLE,
                partition_index=log.tp.partition,
                leader_id=nodes[0] if nodes else NO_NODE,
                leader_epoch=log.seen_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
