"""DescribeConfigsRequest and DescribeConfigsResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Bool, Int8, Int16, Int32, Message, String, nullable, since


class DescribeConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: Annotated[list[String] | None, nullable()] = []


class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, since(3)] = False


class DescribeConfigsSynonym(Message):
    name: String = ""
    value: Annotated[String | None, nullable()] = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Message):
    name: String = ""
    value: Annotated[String | None, nullable()] = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[String | None, since(3), nullable()] = ""


class DescribeConfigsResult(Message):
    error_code: Int16 = 0
    error_message: Annotated[String | None, nullable()] = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
