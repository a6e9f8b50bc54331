from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.static.primitive import i16, i32

from catena.types import Buffer
from catena.wire.apis import API_VERSIONS, APIS
from catena.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from catena.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from catena.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from catena.wire.reader import WireError
from catena.wire.requests import Refused, Request, parse_request, response_frame
from catena.wire.writer import Unwritable
from tests.wire import oracle
from tests.wire.messages import REQUESTS, RESPONSES, Case

METADATA = APIS[3]


def parse(data: str) -> Request:
    return parse_request(memoryview(bytes.fromhex(data)))


def opened(parts: list[Buffer]) -> bytes:
    """The frame without its size, which must be right."""
    data = b"".join(parts)
    assert struct.unpack_from(">i", data) == (len(data) - 4,)
    return data[4:]


@pytest.mark.parametrize("case", REQUESTS, ids=str)
def test_requests_of_kio(case: Case) -> None:
    kio_type: Any = oracle.entity_type(case)
    body = oracle.entity(kio_type, case.message())
    header = kio_type.__header_schema__(
        request_api_key=i16(case.api.key),
        request_api_version=i16(case.version),
        correlation_id=i32(77),
        client_id="me",
    )
    frame = oracle.write(header) + oracle.write(body)
    assert parse_request(memoryview(frame)) == (case.api, case.version, 77, "me", case.message())
    for length in range(len(frame)):
        with pytest.raises(WireError):
            parse_request(memoryview(frame[:length]))


@pytest.mark.parametrize("case", RESPONSES, ids=str)
def test_responses_are_read_by_kio(case: Case) -> None:
    kio_type: Any = oracle.entity_type(case)
    frame = opened(response_frame(case.api, case.version, 77, case.message()))
    header, size = oracle.read(kio_type.__header_schema__, frame)
    assert header.correlation_id == 77
    body = frame[size:]
    assert oracle.read(kio_type, body) == (oracle.entity(kio_type, case.message()), len(body))


def test_the_client_id_may_be_null_and_need_not_be_utf_8() -> None:
    assert parse("0003 0001 00000007 ffff ffffffff").client_id is None
    assert parse("0003 0001 00000007 0000 ffffffff").client_id == ""
    assert parse("0003 0001 00000007 0002 c328 ffffffff").client_id == "\ufffd("


def test_tags_in_the_header_and_bytes_after_the_body_are_left_aside() -> None:
    request = parse("0003 0009 00000007 0001 61 02 0001ff 0500 00 01 00 00 00 ffffff")
    assert request == (METADATA, 9, 7, "a", MetadataRequest(topics=None))


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        ("", "a request of 0 bytes has no header"),
        ("0003 0001 00000007 00", "a request of 9 bytes has no header"),
        ("0003 0001 00000007 0005 61", "the client id has 5 bytes, and 1 are left"),
        ("0003 0001 00000007 fffe 00000000", "the client id has -2 bytes"),
        ("0003 0009 00000007 ffff", "a request of 10 bytes ends within its header"),
        ("0003 0009 00000007 ffff 80", "a request of 11 bytes ends within its header"),
        ("0003 0009 00000007 ffff 02 00", "2 tagged fields, and 1 bytes are left"),
        ("0003 0009 00000007 ffff 01 00ffffffff0f", "a tagged field has 4294967295 bytes, and 0 are left"),
        ("0003 0001 00000007 ffff", "MetadataRequest v1: it ends too early, after 10 bytes"),
        ("0003 0001 00000007 ffff 000f4240", "MetadataRequest v1: topics has 1000000 entries, and 0 bytes are left"),
    ],
)
def test_says_what_is_wrong(data: str, trouble: str) -> None:
    with pytest.raises(WireError, match=trouble):
        parse(data)


@pytest.mark.parametrize("key", [-1, 4, 24, 999, 32767])
def test_unknown_apis(key: int) -> None:
    with pytest.raises(Refused, match=f"key {key} ") as caught:
        parse_request(memoryview(struct.pack(">hhih", key, 0, 7, -1)))
    assert (caught.value.api.key, caught.value.version, caught.value.correlation_id) == (key, 0, 7)


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_unknown_versions_say_whom_to_answer(version: int) -> None:
    with pytest.raises(Refused, match=f"Metadata has the versions 0 to 13 here, not {version}") as caught:
        parse_request(memoryview(struct.pack(">hhih", 3, version, 7, -1)))
    assert (caught.value.api.key, caught.value.version, caught.value.correlation_id) == (METADATA.key, 0, 7)


def test_produce_is_advertised_from_0_and_refused_below_3() -> None:
    assert APIS[0].advertised_first == 0
    with pytest.raises(Refused, match="versions 3 to 13 here, not 2"):
        parse("0000 0002 00000007 ffff")


def test_a_request_for_a_version_of_the_future_can_be_answered_in_version_0() -> None:
    frame = opened(response_frame(API_VERSIONS, 0, 7, ApiVersionsResponse(error_code=35)))
    assert frame == bytes.fromhex("00000007 0023 00000000")


def test_the_header_of_api_versions_never_has_tags() -> None:
    assert parse("0012 0003 00000007 ffff 00 0261 0262 00").body == ApiVersionsRequest(
        client_software_name="a", client_software_version="b"
    )
    assert opened(response_frame(API_VERSIONS, 3, 7, ApiVersionsResponse())) == bytes.fromhex(
        "00000007 0000 01 00000000 00"
    )


def test_record_batches_are_passed_on_as_they_are() -> None:
    batch = b"a batch"
    partition = PartitionData(records=[batch])
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    parts = response_frame(APIS[1], 12, 7, response)
    assert any(part is batch for part in parts)
    opened(parts)


def test_a_response_that_cannot_be_written() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name="x" * 40000)])
    with pytest.raises(Unwritable, match=r"MetadataResponse v12: topics\[0\].name has 40000 bytes"):
        response_frame(METADATA, 12, 7, response)


@given(st.binary(max_size=200))
def test_garbage(data: bytes) -> None:
    try:
        parse_request(memoryview(data))
    except WireError:
        pass
