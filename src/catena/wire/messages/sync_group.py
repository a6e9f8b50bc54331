"""SyncGroupRequest and SyncGroupResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Bytes, Int16, Int32, Message, String, nullable, since


class SyncGroupRequestAssignment(Message):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3), nullable()] = None
    protocol_type: Annotated[String | None, since(5), nullable()] = None
    protocol_name: Annotated[String | None, since(5), nullable()] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, since(5), nullable()] = None
    protocol_name: Annotated[String | None, since(5), nullable()] = None
    assignment: Bytes = b""
