"""HeartbeatRequest and HeartbeatResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Int16, Int32, Message, String, nullable, since


class HeartbeatRequest(Message):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3), nullable()] = None


class HeartbeatResponse(Message):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
