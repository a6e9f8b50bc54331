"""ConsumerGroupDescribeRequest and ConsumerGroupDescribeResponse."""

from __future__ import annotations

from typing import Annotated

import msgspec

from catena.wire.schema import NO_ID, Bool, Int8, Int16, Int32, Message, String, Uuid, nullable, since


class ConsumerGroupDescribeRequest(Message):
    group_ids: list[String] = []
    include_authorized_operations: Bool = False


class TopicPartitions(Message):
    topic_id: Uuid = NO_ID
    topic_name: String = ""
    partitions: list[Int32] = []


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = []


class Member(Message):
    member_id: String = ""
    instance_id: Annotated[String | None, nullable()] = None
    rack_id: Annotated[String | None, nullable()] = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    subscribed_topic_regex: Annotated[String | None, nullable()] = None
    assignment: Assignment = msgspec.field(default_factory=Assignment)
    target_assignment: Assignment = msgspec.field(default_factory=Assignment)
    member_type: Annotated[Int8, since(1)] = -1


class DescribedGroup(Message):
    error_code: Int16 = 0
    error_message: Annotated[String | None, nullable()] = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
