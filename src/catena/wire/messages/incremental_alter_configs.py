"""IncrementalAlterConfigsRequest and IncrementalAlterConfigsResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Bool, Int8, Int16, Int32, Message, String, nullable


class AlterableConfig(Message):
    name: String = ""
    config_operation: Int8 = 0
    value: Annotated[String | None, nullable()] = ""


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: Annotated[String | None, nullable()] = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
