"""Responses to requests that are not supported, empty but for their error: see `catena.wire.unsupported`."""

from __future__ import annotations

from typing import Annotated

from catena.wire.codes import Code
from catena.wire.schema import (
    NO_ID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Uuid,
    nullable,
    since,
    until,
)

REFUSED = Code.UNSUPPORTED_VERSION
WHY = "this broker does not support the request; ApiVersions tells which it does"


class ErrorOnly(Message):
    error_code: Int16 = REFUSED


class Throttled(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = REFUSED


class Listed(Throttled):
    items: list[Int32] = []
    """Of whatever kind: there are none."""


class Explained(Throttled):
    error_message: Annotated[String | None, nullable()] = WHY


class ExplainedList(Explained):
    items: list[Int32] = []


class EndTxn(Throttled):
    producer_id: Annotated[Int64, since(5)] = -1
    producer_epoch: Annotated[Int16, since(5)] = -1


class SaslHandshake(Message):
    error_code: Int16 = Code.ILLEGAL_SASL_STATE
    mechanisms: list[String] = []


class SaslAuthenticate(Message):
    error_code: Int16 = Code.ILLEGAL_SASL_STATE
    error_message: Annotated[String | None, nullable()] = "clients are not authenticated here"
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0


class CreateDelegationToken(Message):
    error_code: Int16 = Code.DELEGATION_TOKEN_AUTH_DISABLED
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, since(3)] = ""
    token_requester_principal_name: Annotated[String, since(3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0


class ChangeDelegationToken(Message):
    error_code: Int16 = Code.DELEGATION_TOKEN_AUTH_DISABLED
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


class DescribeDelegationToken(Message):
    error_code: Int16 = Code.DELEGATION_TOKEN_AUTH_DISABLED
    tokens: list[Int32] = []
    throttle_time_ms: Int32 = 0


class AlterPartitionReassignments(Message):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    error_code: Int16 = REFUSED
    error_message: Annotated[String | None, nullable()] = WHY
    responses: list[Int32] = []


class DescribeQuorum(Message):
    error_code: Int16 = REFUSED
    error_message: Annotated[String | None, nullable(), since(2)] = WHY
    topics: list[Int32] = []
    nodes: Annotated[list[Int32], since(2)] = []


class UpdateFeatures(Explained):
    results: Annotated[list[Int32], until(1)] = []


class ListTransactions(Throttled):
    unknown_state_filters: list[String] = []
    transaction_states: list[Int32] = []


class GetTelemetrySubscriptions(Throttled):
    client_instance_id: Uuid = NO_ID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: list[String] = []


class ShareGroupHeartbeat(Explained):
    member_id: Annotated[String | None, nullable()] = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Annotated[Message | None, nullable()] = None


class ShareFetch(Explained):
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[Int32] = []
    node_endpoints: list[Int32] = []


class ShareAcknowledge(Explained):
    acquisition_lock_timeout_ms: Annotated[Int32, since(2)] = 0
    responses: list[Int32] = []
    node_endpoints: list[Int32] = []


class StreamsGroupHeartbeat(Explained):
    member_id: String = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: Annotated[list[Int32] | None, nullable()] = None
    active_tasks: Annotated[list[Int32] | None, nullable()] = None
    standby_tasks: Annotated[list[Int32] | None, nullable()] = None
    warmup_tasks: Annotated[list[Int32] | None, nullable()] = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: Annotated[list[Int32] | None, nullable()] = None
