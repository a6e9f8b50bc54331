"""CreatePartitionsRequest and CreatePartitionsResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Bool, Int16, Int32, Message, String, nullable


class CreatePartitionsAssignment(Message):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Message):
    name: String = ""
    count: Int32 = 0
    assignments: Annotated[list[CreatePartitionsAssignment] | None, nullable()] = []


class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message):
    name: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, nullable()] = None


class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
