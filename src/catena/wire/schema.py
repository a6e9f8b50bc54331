"""The words in which messages are described: what a field is on the wire, and in which versions it is there.

A message is a plain class with every field that any version has; `reader` and `writer` turn it into a reader and a
writer for one version. A field that a version lacks keeps its default when it is read and is left out when written.

    class FetchPartition(Message):
        partition: Int32 = 0
        current_leader_epoch: Annotated[Int32, since(9)] = -1
        replica_directory_id: Annotated[Uuid, tagged(0, 17)] = NO_ID
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from catena.types import Buffer

LAST = 1 << 15
NO_ID = "0" * 32
"""An id that stands for none."""
MAX_STRING_BYTES = (1 << 15) - 1
"""In compact strings too: what Kafka's clients and brokers refuse is neither read nor written here."""


class Kind(NamedTuple):
    """How a value is written: the format character of a number, or the name of another primitive."""

    name: str


class Versions(NamedTuple):
    first: int = 0
    last: int = LAST


class Nullable(NamedTuple):
    first: int = 0


class Tag(NamedTuple):
    number: int
    first: int = 0


def since(first: int, last: int = LAST) -> Versions:
    return Versions(first, last)


def until(last: int) -> Versions:
    return Versions(0, last)


def nullable(first: int = 0) -> Nullable:
    """It may be null from this version on; the type must say `| None`."""
    return Nullable(first)


def tagged(number: int, first: int = 0) -> Tag:
    """In the section of tagged fields, and only if it differs from its default."""
    return Tag(number, first)


Bool: TypeAlias = Annotated[bool, Kind("?")]
Int8: TypeAlias = Annotated[int, Kind("b")]
Int16: TypeAlias = Annotated[int, Kind("h")]
UInt16: TypeAlias = Annotated[int, Kind("H")]
Int32: TypeAlias = Annotated[int, Kind("i")]
Int64: TypeAlias = Annotated[int, Kind("q")]
Float64: TypeAlias = Annotated[float, Kind("d")]
Uuid: TypeAlias = Annotated[str, Kind("uuid")]
"""32 hex digits."""
String: TypeAlias = Annotated[str, Kind("string")]
Bytes: TypeAlias = Annotated[bytes, Kind("bytes")]
Records: TypeAlias = Annotated[Sequence[Buffer], Kind("records")]
"""Record batches. Read as one slice of the request, written as many buffers, never copied."""


class Message(msgspec.Struct, gc=False):
    """A request, a response, or a part of one."""
