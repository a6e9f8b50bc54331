"""DescribeTopicPartitionsRequest and DescribeTopicPartitionsResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import NO_ID, Bool, Int16, Int32, Message, String, Uuid, nullable


class TopicRequest(Message):
    name: String = ""


class Cursor(Message):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message):
    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Annotated[Cursor | None, nullable()] = None


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, nullable()] = None
    last_known_elr: Annotated[list[Int32] | None, nullable()] = None
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: Int16 = 0
    name: Annotated[String | None, nullable()] = ""
    topic_id: Uuid = NO_ID
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Annotated[Cursor | None, nullable()] = None
