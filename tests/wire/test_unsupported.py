"""Refusals are read by an independent implementation of the protocol, in every version that it knows."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

from catena.wire.apis import APIS
from catena.wire.codes import Code
from catena.wire.requests import Refused, parse_request, response_frame
from catena.wire.unsupported import UNSUPPORTED, Unsupported
from tests.wire import oracle

CASES = [(each, version) for each in UNSUPPORTED.values() for version in range(each.api.first, each.api.last + 1)]
ITEMS_ONLY = {
    "add_partitions_to_txn": range(4),
    "elect_leaders": range(1),
}
"""Versions in which only items have an error code."""
SECURITY: dict[int, Code] = {
    17: Code.ILLEGAL_SASL_STATE,
    29: Code.SECURITY_DISABLED,
    36: Code.ILLEGAL_SASL_STATE,
    **dict.fromkeys(range(38, 42), Code.DELEGATION_TOKEN_AUTH_DISABLED),
}


def request(key: int, version: int) -> memoryview:
    return memoryview(struct.pack(">hhihb", key, version, 77, -1, 0))


@pytest.mark.parametrize(("each", "version"), CASES, ids=[f"{each.name}-v{version}" for each, version in CASES])
def test_kio_reads_the_error(each: Unsupported, version: int) -> None:
    with pytest.raises(Refused, match=each.name) as caught:
        parse_request(request(each.api.key, version))
    refused = caught.value
    assert refused.correlation_id == 77
    frame = b"".join(response_frame(refused.api, refused.version, refused.correlation_id, refused.answer))[4:]
    kio_type: Any = load_response_schema(each.api.key, version)
    header, size = oracle.read(kio_type.__header_schema__, frame)
    assert header.correlation_id == 77
    body, body_size = oracle.read(kio_type, frame[size:])
    assert size + body_size == len(frame)
    assert body.error_code == ErrorCode(SECURITY.get(each.api.key, Code.UNSUPPORTED_VERSION))
    assert kio_type.__flexible__ == each.api.is_flexible(version)


def test_names_and_versions_are_those_of_kio() -> None:
    assert not APIS.keys() & UNSUPPORTED.keys()
    for key, each in UNSUPPORTED.items():
        name = api_key_map[key]
        assert each.name.lower() == name.replace("_", "")
        known = sorted(set(schema_name_map[name]) - set(ITEMS_ONLY.get(name, ())))
        assert known == list(range(each.api.first, each.api.last + 1)), name


@pytest.mark.parametrize(
    ("key", "version"), [(24, 3), (25, 5), (25, -1), (26, 32767), (30, 1), (28, 3), (4, 0), (999, 0)]
)
def test_what_nobody_knows_is_answered_with_an_error_code_and_nothing_else(key: int, version: int) -> None:
    with pytest.raises(Refused, match=f"key {key} and version {version} here") as caught:
        parse_request(request(key, version))
    error = caught.value
    frame = b"".join(map(bytes, response_frame(error.api, error.version, error.correlation_id, error.answer)))
    assert frame == struct.pack(">iih", 6, error.correlation_id, Code.UNSUPPORTED_VERSION)
    assert error.api.key == key, "what the connection has charged for the request is given back by its key"
