"""OffsetDeleteRequest and OffsetDeleteResponse."""

from __future__ import annotations

from catena.wire.schema import Int16, Int32, Message, String


class OffsetDeleteRequestPartition(Message):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Message):
    name: String = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(Message):
    group_id: String = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message):
    name: String = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(Message):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []
