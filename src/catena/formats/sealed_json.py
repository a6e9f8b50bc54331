"""JSON objects that end with the CRC-32C of themselves, so that not one changed, missing or added byte is taken.

    {"version": 1, ..., "header_crc32c": "5e6f7a8b"}

The seal is always the last key, in exactly this form (without spaces), and is the CRC-32C of all that stands before its
comma. A header at the start of an object has a frame, which the seal covers, too:

    byte 0   magic, 4 bytes
         4   length of the JSON, uint32, big-endian
         8   the JSON

A reader takes fields that it does not know; a writer that changes what the known ones mean has to raise `version`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

import msgspec
from crc32c import crc32c

from catena.errors import Corrupt, StoreRefused
from catena.types import Buffer

FRAME_BYTES = 8
"""Magic and length: what has to be read to know how much more is header."""
SEAL = "header_crc32c"
"""Name of a header's last key."""

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
JsonVersion: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]

T = TypeVar("T")


class _Versioned(msgspec.Struct, frozen=True):
    version: JsonVersion


_VERSION = msgspec.json.Decoder(_Versioned)


def sealed(json: bytes, name: str) -> bytes:
    """This JSON object, with its seal as the last key."""
    return _with_seal(json[:-1], name)


def unseal(data: Buffer, name: str, what: str) -> None:
    """Raise Corrupt unless `data` ends with its seal. `what` is for errors: "the segment"."""
    view = memoryview(data)
    at = len(view) - len(_seal(0, name))
    if at < 0:
        raise Corrupt(f"byte {len(view)} of {what}: it ends before its checksum could stand")
    seal, computed = bytes(view[at:]), _seal(crc32c(view[:at]), name)
    if seal != computed:
        raise Corrupt(f"byte {at} of {what}: bytes 0 to {at - 1} give {computed!r}, not {seal!r}")


def decode(json: Buffer, decoder: msgspec.json.Decoder[T], version: int, what: str, at: int = 0) -> T:
    """What this JSON, which starts at byte `at`, says; `version` is the latest that the decoder knows."""
    try:
        found = _VERSION.decode(json).version
        if found > version:
            raise StoreRefused(f"{what} is of version {found}; this release reads up to {version}: upgrade it")
        return decoder.decode(json)
    except msgspec.DecodeError as error:
        raise Corrupt(f"byte {at} of {what}: this is not what version {version} has: {error}") from error


def encode_header(magic: bytes, json: bytes) -> bytes:
    """This JSON object, sealed, as a header at the start of an object."""
    length = len(json) - 1 + len(_seal(0, SEAL))
    return _with_seal(b"".join((magic, length.to_bytes(4, "big"), json[:-1])), SEAL)


def header_bytes(data: Buffer, magic: bytes, max_bytes: int, what: str) -> int:
    """How many bytes from the start of the object are header; the first 8 bytes tell."""
    if len(data) < FRAME_BYTES:
        raise Corrupt(f"byte {len(data)} of {what}: it ends before the length of its header")
    found = bytes(data[:4])
    if found != magic:
        raise Corrupt(f"byte 0 of {what}: magic is {found!r}, not {magic!r}")
    length = int.from_bytes(data[4:FRAME_BYTES], "big")
    if not len(_seal(0, SEAL)) <= length <= max_bytes:
        raise Corrupt(f"byte 4 of {what}: a header of {length} bytes cannot be")
    return FRAME_BYTES + length


def open_header(data: Buffer, magic: bytes, max_bytes: int, what: str) -> memoryview:
    """The JSON of the header, whose seal is checked; `data` is `header_bytes` of the object or more."""
    end = header_bytes(data, magic, max_bytes, what)
    if end > len(data):
        raise Corrupt(f"byte {len(data)} of {what}: it ends before its header, which has {end} bytes")
    header = memoryview(data)[:end]
    unseal(header, SEAL, what)
    return header[FRAME_BYTES:]


def _with_seal(covered: bytes, name: str) -> bytes:
    return covered + _seal(crc32c(covered), name)


def _seal(crc: int, name: str) -> bytes:
    """It is compared as text: read as a number, `A` and `a` would be the same."""
    return f',"{name}":"{crc:08x}"}}'.encode()
