"""FindCoordinatorRequest and FindCoordinatorResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Int8, Int16, Int32, Message, String, nullable, since, until


class FindCoordinatorRequest(Message):
    key: Annotated[String, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[String], since(4)] = []


class Coordinator(Message):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, nullable()] = ""


class FindCoordinatorResponse(Message):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = []
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[String | None, since(1, 3), nullable()] = ""
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[String, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
