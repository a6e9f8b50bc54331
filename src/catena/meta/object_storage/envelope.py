"""How a meta record is stored as an object: one line of JSON that explains it, then the value.

The nonce is new in every write. So no two writes have the same content, and neither the same etag, though S3 makes
etags of content: a compare-and-set on an etag can't be fooled by A-B-A. And whoever gets no clear answer to a write
recognizes its own by it.

An envelope without a value is a tombstone: object stores can't delete on a condition, so a conditional delete
overwrites. It reads as absent, and a put that expects ABSENT replaces it by its etag.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from catena.errors import Corrupt, StoreRefused
from catena.types import Buffers

FORMAT = 1


class Envelope(NamedTuple):
    nonce: str
    value: bytes | None
    session: str | None = None
    """The session that the record lives and dies with."""


class _Header(msgspec.Struct, omit_defaults=True):
    format: int
    nonce: str
    absent: bool = False
    session: str | None = None


_decoder = msgspec.json.Decoder(_Header)


def encode(envelope: Envelope) -> Buffers:
    header = _Header(FORMAT, envelope.nonce, envelope.value is None, envelope.session)
    return [msgspec.json.encode(header), b"\n", envelope.value or b""]


def decode(key: str, data: bytes) -> Envelope:
    line, newline, value = data.partition(b"\n")
    try:
        header = _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"object {key} does not begin as a meta record does: {error}") from error
    if header.format > FORMAT:
        raise StoreRefused(f"object {key} has format {header.format}, and this version reads {FORMAT}; upgrade Catena")
    if not newline:
        raise Corrupt(f"object {key} ends within its header, after {len(data)} bytes")
    return Envelope(header.nonce, None if header.absent else value, header.session)
