"""LeaveGroupRequest and LeaveGroupResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Int16, Int32, Message, String, nullable, since, until


class MemberIdentity(Message):
    member_id: String = ""
    group_instance_id: Annotated[String | None, nullable()] = None
    reason: Annotated[String | None, since(5), nullable()] = None


class LeaveGroupRequest(Message):
    group_id: String = ""
    members: Annotated[list[MemberIdentity], since(3)] = []
    member_id: Annotated[String, until(2)] = ""


class MemberResponse(Message):
    member_id: String = ""
    group_instance_id: Annotated[String | None, nullable()] = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], since(3)] = []
