"""OffsetCommitRequest and OffsetCommitResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import NO_ID, Int16, Int32, Int64, Message, String, Uuid, nullable, since, until


class OffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    committed_metadata: Annotated[String | None, nullable()] = ""


class OffsetCommitRequestTopic(Message):
    topic_id: Annotated[Uuid, since(10)] = NO_ID
    name: Annotated[String, until(9)] = ""
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Message):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(7), nullable()] = None
    retention_time_ms: Annotated[Int64, until(4)] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message):
    topic_id: Annotated[Uuid, since(10)] = NO_ID
    name: Annotated[String, until(9)] = ""
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitResponseTopic] = []
