"""The requests that Catena answers, and in which versions. Everything that is advertised is read from this table."""

from __future__ import annotations

from typing import NamedTuple

from catena.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from catena.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from catena.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from catena.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from catena.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from catena.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from catena.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from catena.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from catena.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from catena.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from catena.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from catena.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from catena.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from catena.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from catena.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from catena.wire.messages.fetch import FetchRequest, FetchResponse
from catena.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from catena.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from catena.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from catena.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from catena.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from catena.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from catena.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from catena.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from catena.wire.messages.metadata import MetadataRequest, MetadataResponse
from catena.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from catena.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from catena.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from catena.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from catena.wire.messages.produce import ProduceRequest, ProduceResponse
from catena.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from catena.wire.schema import LAST, Message

NEVER = LAST


class Api(NamedTuple):
    key: int
    request: type[Message]
    response: type[Message]
    first: int
    last: int
    flexible: int
    """Compact lengths and tagged fields from this version on."""
    advertised_first: int | None = None
    """If it differs from `first`."""

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible


APIS = {
    api.key: api
    for api in (
        # Versions 0 to 2 are advertised, and refused: librdkafka does not use compression if it doesn't see them.
        Api(0, ProduceRequest, ProduceResponse, 3, 13, 9, advertised_first=0),
        Api(1, FetchRequest, FetchResponse, 4, 18, 12),
        Api(2, ListOffsetsRequest, ListOffsetsResponse, 1, 11, 6),
        Api(3, MetadataRequest, MetadataResponse, 0, 13, 9),
        Api(8, OffsetCommitRequest, OffsetCommitResponse, 2, 10, 8),
        Api(9, OffsetFetchRequest, OffsetFetchResponse, 1, 10, 6),
        Api(10, FindCoordinatorRequest, FindCoordinatorResponse, 0, 6, 3),
        Api(11, JoinGroupRequest, JoinGroupResponse, 0, 9, 6),
        Api(12, HeartbeatRequest, HeartbeatResponse, 0, 4, 4),
        Api(13, LeaveGroupRequest, LeaveGroupResponse, 0, 5, 4),
        Api(14, SyncGroupRequest, SyncGroupResponse, 0, 5, 4),
        Api(15, DescribeGroupsRequest, DescribeGroupsResponse, 0, 6, 5),
        Api(16, ListGroupsRequest, ListGroupsResponse, 0, 5, 3),
        Api(18, ApiVersionsRequest, ApiVersionsResponse, 0, 4, 3),
        Api(19, CreateTopicsRequest, CreateTopicsResponse, 2, 7, 5),
        Api(20, DeleteTopicsRequest, DeleteTopicsResponse, 1, 6, 4),
        Api(21, DeleteRecordsRequest, DeleteRecordsResponse, 0, 2, 2),
        Api(22, InitProducerIdRequest, InitProducerIdResponse, 0, 6, 2),
        Api(23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, 2, 4, 4),
        Api(32, DescribeConfigsRequest, DescribeConfigsResponse, 1, 4, 4),
        Api(33, AlterConfigsRequest, AlterConfigsResponse, 0, 2, 2),
        Api(35, DescribeLogDirsRequest, DescribeLogDirsResponse, 1, 5, 2),
        Api(37, CreatePartitionsRequest, CreatePartitionsResponse, 0, 3, 2),
        Api(42, DeleteGroupsRequest, DeleteGroupsResponse, 0, 2, 2),
        Api(44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 0, 1, 1),
        Api(47, OffsetDeleteRequest, OffsetDeleteResponse, 0, 0, NEVER),
        Api(60, DescribeClusterRequest, DescribeClusterResponse, 0, 2, 0),
        Api(61, DescribeProducersRequest, DescribeProducersResponse, 0, 0, 0),
        Api(68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, 0, 1, 0),
        Api(69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, 0, 1, 0),
        Api(75, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, 0, 0, 0),
    )
}
API_VERSIONS = APIS[18]
