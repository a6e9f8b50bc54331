"""MetadataRequest and MetadataResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import NO_ID, Bool, Int16, Int32, Message, String, Uuid, nullable, since


class MetadataRequestTopic(Message):
    topic_id: Annotated[Uuid, since(10)] = NO_ID
    name: Annotated[String | None, nullable(10)] = ""


class MetadataRequest(Message):
    topics: Annotated[list[MetadataRequestTopic] | None, nullable(1)] = []
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, since(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataResponseBroker(Message):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, since(1), nullable()] = None


class MetadataResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], since(5)] = []


class MetadataResponseTopic(Message):
    error_code: Int16 = 0
    name: Annotated[String | None, nullable(12)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_ID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


class MetadataResponse(Message):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[String | None, since(2), nullable()] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: list[MetadataResponseTopic] = []
    error_code: Annotated[Int16, since(13)] = 0
    cluster_authorized_operations: Annotated[Int32, since(8, 10)] = -2147483648
