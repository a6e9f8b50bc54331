"""ConsumerGroupHeartbeatRequest and ConsumerGroupHeartbeatResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import NO_ID, Int16, Int32, Message, String, Uuid, nullable, since


class TopicPartitions(Message):
    topic_id: Uuid = NO_ID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(Message):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: Annotated[String | None, nullable()] = None
    rack_id: Annotated[String | None, nullable()] = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Annotated[list[String] | None, nullable()] = None
    subscribed_topic_regex: Annotated[String | None, since(1), nullable()] = None
    server_assignor: Annotated[String | None, nullable()] = None
    topic_partitions: Annotated[list[TopicPartitions] | None, nullable()] = []


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, nullable()] = None
    member_id: Annotated[String | None, nullable()] = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Annotated[Assignment | None, nullable()] = None
