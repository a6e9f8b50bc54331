"""One request out of a frame, one frame out of a response.

    frame:     size (4)  header  body                      the size does not count itself
    request:   api (2)  version (2)  correlation id (4)  client id  [tags]  body
    response:  correlation id (4)  [tags]  body

The header has tags where the version is flexible; the client id never is compact. The header of an ApiVersions
response never has tags: a client that guessed the version wrong must be able to read it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from catena.types import Buffer
from catena.wire.apis import API_VERSIONS, APIS, Api
from catena.wire.reader import MAX_ENTRIES, WireError, read_message, skip_tags
from catena.wire.schema import Message
from catena.wire.unsupported import UNSUPPORTED, Unsupported, unknown
from catena.wire.writer import write_message

HEADER = struct.Struct(">hhih")
"""Up to the length of the client id."""
SIZE_AND_ID = struct.Struct(">ii")
SIZE_BYTES = 4


class Request(NamedTuple):
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Message


class Refused(WireError):
    """It is known whom to answer and how, and no more."""

    def __init__(self, trouble: str, refused: Unsupported, version: int, correlation_id: int) -> None:
        super().__init__(trouble)
        self.api, self.version, self.correlation_id, self.answer = refused.api, version, correlation_id, refused.answer


def key_of(frame: memoryview) -> int:
    """Of which API it claims to be; -1 if it is too short to be of any."""
    return int.from_bytes(frame[:2], "big", signed=True) if len(frame) >= 2 else -1


def parse_request(frame: memoryview) -> Request:
    """Raises WireError, whatever the bytes are."""
    try:
        key, version, correlation_id, length = HEADER.unpack_from(frame)
    except struct.error:
        raise WireError(f"a request of {len(frame)} bytes has no header") from None
    api = APIS.get(key)
    if api is None:
        refused = UNSUPPORTED.get(key)
        if refused is not None and refused.api.first <= version <= refused.api.last:
            raise Refused(f"{refused.name} is not supported here", refused, version, correlation_id)
        trouble = f"there is no request with key {key} and version {version} here"
        raise Refused(trouble, unknown(key), 0, correlation_id)
    if not api.first <= version <= api.last:
        trouble = f"{api.name} has the versions {api.first} to {api.last} here, not {version}"
        raise Refused(trouble, unknown(key), 0, correlation_id)
    at, client_id = HEADER.size, None
    if not -1 <= length <= len(frame) - at:
        raise WireError(f"the client id has {length} bytes, and {len(frame) - at} are left")
    if length >= 0:
        client_id = str(frame[at : at + length], "utf-8", "replace")
        at += length
    flexible = version >= api.flexible
    if flexible:
        try:
            at = skip_tags(frame, at, MAX_ENTRIES)[0] if frame[at] else at + 1
        except IndexError:
            raise WireError(f"a request of {len(frame)} bytes ends within its header") from None
    # What comes after the body is left aside, as Kafka does.
    body, _ = read_message(api.request, version, flexible, frame, at)
    return Request(api, version, correlation_id, client_id, body)


def response_frame(api: Api, version: int, correlation_id: int, response: Message) -> list[Buffer]:
    """The buffers of a frame; those of record batches are passed on as they are. Raises Unwritable."""
    flexible = api.is_flexible(version)
    tags = b"\0" if flexible and api is not API_VERSIONS else b""
    parts = write_message(response, version, flexible, [bytes(SIZE_AND_ID.size), tags])
    SIZE_AND_ID.pack_into(parts[0], 0, sum(map(len, parts)) - SIZE_BYTES, correlation_id)
    return parts
