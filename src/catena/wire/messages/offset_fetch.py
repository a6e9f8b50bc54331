"""OffsetFetchRequest and OffsetFetchResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import NO_ID, Bool, Int16, Int32, Int64, Message, String, Uuid, nullable, since, until


class OffsetFetchRequestTopic(Message):
    name: String = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(Message):
    topic_id: Annotated[Uuid, since(10)] = NO_ID
    name: Annotated[String, until(9)] = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Message):
    group_id: String = ""
    member_id: Annotated[String | None, since(9), nullable()] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, nullable()] = []


class OffsetFetchRequest(Message):
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = []
    group_id: Annotated[String, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable(2)] = []
    require_stable: Annotated[Bool, since(7)] = False


class OffsetFetchResponsePartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: Annotated[String | None, nullable()] = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message):
    name: String = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: Annotated[String | None, nullable()] = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Message):
    topic_id: Annotated[Uuid, since(10)] = NO_ID
    name: Annotated[String, until(9)] = ""
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Message):
    group_id: String = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(Message):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = []
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = []
    error_code: Annotated[Int16, since(2, 7)] = 0
