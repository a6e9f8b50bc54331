"""What the diskless loglet keeps in the meta store, as JSON; the keys are in `catena.meta.keys`.

`Control` is the one record that decides: an append is committed by the compare-and-set that moves `next`. Offsets below
`next` of this epoch are in the log, and each is covered by exactly one index entry or by `pending`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from catena.errors import Corrupt
from catena.formats.wal_blob import KAFKA_BATCH_V2
from catena.loglets.producers import ProducerState
from catena.types import Epoch, Offset


class IndexEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the offsets [end_offset - msg_count + 1, end_offset] are stored."""

    end_offset: Offset
    msg_count: int
    data_key: str
    byte_length: int | None = None
    """None: the whole object (partition-local WAL objects of older data)."""
    byte_offset: int = 0
    append_id: str = ""
    max_timestamp: int = -1
    created_at_ms: int = 0
    type: Literal["WAL"] = "WAL"
    encoding: str = KAFKA_BATCH_V2

    @property
    def start_offset(self) -> Offset:
        return self.end_offset - self.msg_count + 1


class ProducerRecord(msgspec.Struct, frozen=True):
    """State of one producer, valid for the link that wrote it: another link starts from its handoff."""

    link_epoch: Epoch
    state: ProducerState


class Pending(msgspec.Struct, frozen=True):
    """A committed append whose index entries and producer records may not be written yet."""

    append_id: str
    entries: tuple[IndexEntry, ...]
    producers: dict[int, ProducerState]


class Control(msgspec.Struct, frozen=True, omit_defaults=True):
    epoch: Epoch
    state: Literal["OPEN", "FENCED"]
    next: Offset
    pending: Pending | None = None


T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_control = msgspec.json.Decoder(Control)
_index_entry = msgspec.json.Decoder(IndexEntry)
_producer = msgspec.json.Decoder(ProducerRecord)
_fields = msgspec.json.Decoder(dict[str, Any])

encode = _encoder.encode


def decode_control(key: str, value: bytes) -> Control:
    return _decode(_control, key, value)


def decode_index_entry(key: str, value: bytes) -> IndexEntry:
    try:
        return _index_entry.decode(value)
    except msgspec.MsgspecError as error:
        try:
            # Entries of older data have their end offset in the key only.
            return msgspec.convert({"end_offset": int(key.rpartition("/")[2])} | _fields.decode(value), IndexEntry)
        except (msgspec.MsgspecError, ValueError):
            raise Corrupt(f"meta record {key} can't be read: {error}") from error


def decode_producer(key: str, value: bytes) -> ProducerRecord:
    return _decode(_producer, key, value)


def _decode(decoder: msgspec.json.Decoder[T], key: str, value: bytes) -> T:
    try:
        return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {key} can't be read: {error}") from error
