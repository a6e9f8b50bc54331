"""DescribeClusterRequest and DescribeClusterResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Bool, Int8, Int16, Int32, Message, String, nullable, since


class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[Bool, since(2)] = False


class DescribeClusterBroker(Message):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, nullable()] = None
    is_fenced: Annotated[Bool, since(2)] = False


class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, nullable()] = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648
