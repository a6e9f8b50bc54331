"""DeleteTopicsRequest and DeleteTopicsResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import NO_ID, Int16, Int32, Message, String, Uuid, nullable, since, until


class DeleteTopicState(Message):
    name: Annotated[String | None, nullable()] = None
    topic_id: Uuid = NO_ID


class DeleteTopicsRequest(Message):
    topics: Annotated[list[DeleteTopicState], since(6)] = []
    topic_names: Annotated[list[String], until(5)] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Message):
    name: Annotated[String | None, nullable(6)] = ""
    topic_id: Annotated[Uuid, since(6)] = NO_ID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(5), nullable()] = None


class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []
