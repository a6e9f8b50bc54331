"""CreateTopicsRequest and CreateTopicsResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import NO_ID, Bool, Int8, Int16, Int32, Message, String, Uuid, nullable, since, tagged


class CreatableReplicaAssignment(Message):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Message):
    name: String = ""
    value: Annotated[String | None, nullable()] = ""


class CreatableTopic(Message):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Message):
    name: String = ""
    value: Annotated[String | None, nullable()] = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Message):
    name: String = ""
    topic_id: Annotated[Uuid, since(7)] = NO_ID
    error_code: Int16 = 0
    error_message: Annotated[String | None, nullable()] = ""
    topic_config_error_code: Annotated[Int16, tagged(0, 5)] = 0
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5), nullable()] = []


class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []
