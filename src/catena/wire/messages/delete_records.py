"""DeleteRecordsRequest and DeleteRecordsResponse."""

from __future__ import annotations

from catena.wire.schema import Int16, Int32, Int64, Message, String


class DeleteRecordsPartition(Message):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Message):
    name: String = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Message):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message):
    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
