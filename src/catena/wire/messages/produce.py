"""ProduceRequest and ProduceResponse."""

from __future__ import annotations

from typing import Annotated

import msgspec

from catena.wire.schema import (
    NO_ID,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Uuid,
    nullable,
    since,
    tagged,
    until,
)


class PartitionProduceData(Message):
    index: Int32 = 0
    records: Annotated[Records | None, nullable()] = ()


class TopicProduceData(Message):
    topic_id: Annotated[Uuid, since(13)] = NO_ID
    name: Annotated[String, until(12)] = ""
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(Message):
    transactional_id: Annotated[String | None, nullable()] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Message):
    batch_index: Int32 = 0
    batch_index_error_message: Annotated[String | None, nullable()] = None


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Message):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8)] = []
    error_message: Annotated[String | None, since(8), nullable()] = None
    current_leader: Annotated[LeaderIdAndEpoch, tagged(0, 10)] = msgspec.field(default_factory=LeaderIdAndEpoch)


class TopicProduceResponse(Message):
    topic_id: Annotated[Uuid, since(13)] = NO_ID
    name: Annotated[String, until(12)] = ""
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, nullable()] = None


class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], tagged(0, 10)] = []
