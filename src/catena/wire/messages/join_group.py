"""JoinGroupRequest and JoinGroupResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Bool, Bytes, Int16, Int32, Message, String, nullable, since


class JoinGroupRequestProtocol(Message):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5), nullable()] = None
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[String | None, since(8), nullable()] = None


class JoinGroupResponseMember(Message):
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5), nullable()] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, since(7), nullable()] = None
    protocol_name: Annotated[String | None, nullable(7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []
