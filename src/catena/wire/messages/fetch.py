"""FetchRequest and FetchResponse."""

from __future__ import annotations

from typing import Annotated

import msgspec

from catena.wire.schema import (
    NO_ID,
    Int8,
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


class FetchPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, tagged(0, 17)] = NO_ID
    high_watermark: Annotated[Int64, tagged(1, 18)] = 9223372036854775807


class FetchTopic(Message):
    topic_id: Annotated[Uuid, since(13)] = NO_ID
    topic: Annotated[String, until(12)] = ""
    partitions: list[FetchPartition] = []


class ForgottenTopic(Message):
    topic_id: Annotated[Uuid, since(13)] = NO_ID
    topic: Annotated[String, until(12)] = ""
    partitions: list[Int32] = []


class ReplicaState(Message):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchRequest(Message):
    cluster_id: Annotated[String | None, tagged(0, 12), nullable()] = None
    replica_state: Annotated[ReplicaState, tagged(1, 15)] = msgspec.field(default_factory=ReplicaState)
    replica_id: Annotated[Int32, until(14)] = -1
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7)] = []
    rack_id: Annotated[String, since(11)] = ""


class AbortedTransaction(Message):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class EpochEndOffset(Message):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Message):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class PartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    diverging_epoch: Annotated[EpochEndOffset, tagged(0, 12)] = msgspec.field(default_factory=EpochEndOffset)
    current_leader: Annotated[LeaderIdAndEpoch, tagged(1, 12)] = msgspec.field(default_factory=LeaderIdAndEpoch)
    snapshot_id: Annotated[SnapshotId, tagged(2, 12)] = msgspec.field(default_factory=SnapshotId)
    aborted_transactions: Annotated[list[AbortedTransaction] | None, nullable()] = []
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Annotated[Records | None, nullable()] = ()


class FetchableTopicResponse(Message):
    topic_id: Annotated[Uuid, since(13)] = NO_ID
    topic: Annotated[String, until(12)] = ""
    partitions: list[PartitionData] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, nullable()] = None


class FetchResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], tagged(0, 16)] = []
