"""ApiVersionsRequest and ApiVersionsResponse."""

from __future__ import annotations

from typing import Annotated

from catena.wire.schema import Bool, Int16, Int32, Int64, Message, String, since, tagged


class ApiVersionsRequest(Message):
    client_software_name: Annotated[String, since(3)] = ""
    client_software_version: Annotated[String, since(3)] = ""


class ApiVersion(Message):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Message):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], tagged(0, 3)] = []
    finalized_features_epoch: Annotated[Int64, tagged(1, 3)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], tagged(2, 3)] = []
    zk_migration_ready: Annotated[Bool, tagged(3, 3)] = False
