"""What clients send and get as JSON: typed, bounded, and checked while it is decoded.

A record's bytes are a string where they are UTF-8, and `{"base64": ...}` where they are not; so it is in both
directions. What can't be is refused as a whole, with the place in the JSON: nothing of such a request was done.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from catena.types import Offset

MAX_PARTITIONS = 10_000
"""That one request names."""
MAX_RECORDS = 100_000
"""Of one partition in one request, or in one answer: those without a byte need room, and time, as well."""
LONG = 1_000
"""Records that take half a millisecond to encode, or to decode: others go on after them."""
MAX_WAIT_MS = 300_000
PARTITION_MAX_BYTES = 1 << 20
MAX_BYTES = 8 << 20
"""What a request gets that does not say; and whatever it says, no more."""
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

TopicName: TypeAlias = Annotated[str, Meta(min_length=1)]
PartitionNumber: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
AtLeast0: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]


class InvalidBody(Exception):
    """`at`: the place in the JSON, as in `topic_partitions[0].records[3]`; empty where it has none."""

    def __init__(self, message: str, at: str = "") -> None:
        super().__init__(f"{at}: {message}" if at else message)
        self.at = at


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    base64: bytes


Data: TypeAlias = str | Base64 | None


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: Data = None


class GivenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record that is more than a string. `base64` alone is how arbitrary bytes are sent."""

    base64: bytes | UnsetType = UNSET
    value: Data | UnsetType = UNSET
    key: Data = None
    headers: tuple[Header, ...] = ()
    timestamp: Annotated[int, Meta(ge=0, le=INT64_MAX - 1)] | None = None
    """Milliseconds since 1970."""


class ProducePartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: TopicName
    partition: PartitionNumber
    records: Annotated[list[str | GivenRecord], Meta(min_length=1, max_length=MAX_RECORDS)]


class ProduceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic_partitions: Annotated[list[ProducePartition], Meta(min_length=1, max_length=MAX_PARTITIONS)]


class Produced(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    start_offset: Offset
    end_offset: Offset
    """Of the last record."""
    count: int
    index_key: str | None
    wal_uri: str | None
    ok: Literal[True] = True


class Failed(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    error_type: str
    error: str
    ok: Literal[False] = False


class ProduceResponse(msgspec.Struct, frozen=True):
    results: list[Produced | Failed]
    success_count: int
    error_count: int


class ConsumePartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: TopicName
    partition: PartitionNumber
    fetch_offset: AtLeast0
    partition_max_bytes: AtLeast0 = PARTITION_MAX_BYTES


class ConsumeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic_partitions: Annotated[list[ConsumePartition], Meta(min_length=1, max_length=MAX_PARTITIONS)]
    max_wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)] = 0
    min_bytes: AtLeast0 = 1
    max_bytes: AtLeast0 = MAX_BYTES
    details: bool = False


class FullRecord(msgspec.Struct, frozen=True):
    """A record with all that it has, for those who ask for `details`."""

    offset: Offset
    timestamp: int
    """Milliseconds since 1970; -1: its producer gave none."""
    key: Data
    value: Data
    headers: tuple[Header, ...]


class Consumed(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: str
    partition: int
    ok: bool
    start_offset: Offset
    """Of the first record; where there is none, of the place that was looked at."""
    next_offset: Offset
    """To fetch from next."""
    high_watermark: Offset
    log_start_offset: Offset
    count: int
    records: list[Data] | list[FullRecord]
    offsets: list[Offset] | None = None
    """Of each record, where they are not one after the other: compaction has taken some out."""


class NotConsumed(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: str
    partition: int
    ok: bool
    error_type: str
    error: str
    high_watermark: Offset | None = None
    log_start_offset: Offset | None = None


class ConsumeResponse(msgspec.Struct, frozen=True):
    results: list[Consumed | NotConsumed]
    success_count: int
    error_count: int


class LogName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: TopicName
    partition: PartitionNumber


class ShownLink(msgspec.Struct, frozen=True):
    kind: str
    epoch: int
    base: Offset
    end: Offset | None


class LogState(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    state: Literal["OPEN", "FENCED"]
    start_offset: Offset
    tail: Offset
    """After the last record."""
    boundary: Offset
    """Below it, offsets are tiered."""
    epoch: int
    links: list[ShownLink]


T = TypeVar("T")

FLOAT = "got `float`"
TRUNCATED = "Input data was truncated"


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Raises InvalidBody, with the byte if it is no JSON, and with the place in it if it is another."""
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            if FLOAT not in str(error):
                raise
            # To JSON, 1.0 and 1e3 are integers.
            whole: T = msgspec.convert(_with_integers(msgspec.json.decode(body)), decoder.type)
            return whole
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `")
        raise InvalidBody(message, at.removesuffix("`").removeprefix("$").removeprefix(".")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = str(error) or "it is nested too deeply"
        raise InvalidBody(_truncated(body) if text == TRUNCATED else text) from None


def _truncated(body: bytes) -> str:
    """msgspec says so of a string that ends with half a surrogate pair, too; the standard library takes that."""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return f"JSON that ends too early, at byte {len(body)}"
    return "a string ends with half a surrogate pair (\\ud800 to \\udfff), which is no character"


def _with_integers(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _with_integers(inner) for name, inner in value.items()}
        case list():
            return [_with_integers(inner) for inner in value]
        case _:
            return value
