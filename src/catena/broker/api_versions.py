"""ApiVersions: what is answered here, from the one table of it."""

from __future__ import annotations

from catena.wire.apis import APIS
from catena.wire.codes import Code
from catena.wire.messages.api_versions import ApiVersion, ApiVersionsResponse


def api_versions(error: Code = Code.NONE) -> ApiVersionsResponse:
    """With an error, too, so that the client can ask again in a version that is there."""
    keys = [
        ApiVersion(
            api_key=api.key,
            min_version=api.first if api.advertised_first is None else api.advertised_first,
            max_version=api.last,
        )
        for api in APIS.values()
    ]
    return ApiVersionsResponse(error_code=error, api_keys=keys)
