"""Protobuf values by a .proto file, or by a set of descriptors as protoc writes it, in base64.

    scalars                      the same; uint32 is a long, uint64 a decimal of 20 digits
    enum                         its word, or its number if it has none
    message, repeated, map       struct, list, map
    Timestamp, and the wrappers  timestamp, and what they wrap
    a message within itself      its bytes

A field that can be absent and is, is null; others have their default. The message is the file's first, or the one that
a schema registry's client names by its place behind the schema's id.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.message import DecodeError

from catena.errors import ConfigError
from catena.tables.values.base import ValueSpec
from catena.tables.values.proto_text import parse_proto
from catena.tables.values.typed import MAX_DEPTH, BadValue, TypedDecoder

MAX_INDEXES = 16
_KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2)


class _Type(NamedTuple):
    arrow: pa.DataType
    ready: Callable[[Any], Any] | None = None
    """From what protobuf gives to what Arrow takes; None: it is the same."""


_NUMBERS = {
    "double": _Type(pa.float64()),
    "float": _Type(pa.float32()),
    "int32": _Type(pa.int32()),
    "sint32": _Type(pa.int32()),
    "sfixed32": _Type(pa.int32()),
    "uint32": _Type(pa.int64()),
    "fixed32": _Type(pa.int64()),
    "int64": _Type(pa.int64()),
    "sint64": _Type(pa.int64()),
    "sfixed64": _Type(pa.int64()),
    "uint64": _Type(pa.decimal128(20, 0), Decimal),
    "fixed64": _Type(pa.decimal128(20, 0), Decimal),
    "bool": _Type(pa.bool_()),
    "string": _Type(pa.string()),
    "bytes": _Type(pa.binary()),
}
_NAMES = {
    number: name.removeprefix("TYPE_").lower() for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


class ProtobufDecoder(TypedDecoder):
    def __init__(self, spec: ValueSpec) -> None:
        super().__init__(spec, ProtobufSchema)


class ProtobufSchema:
    def __init__(self, text: str) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for module in _KNOWN:
            self._pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        self._file = self._add(text)
        top = self._message([0])
        self.fields = list(top.type.arrow)
        self._by_place: dict[tuple[int, ...], _Message] = {(0,): top}

    def read(self, payload: bytes, is_framed: bool) -> Mapping[str, Any]:
        place, body = _place(payload) if is_framed else ((0,), payload)
        message = self._by_place.get(place)
        if message is None:
            raise BadValue(f"it is of the message at {list(place)}, and the table is of the first one")
        try:
            found: Mapping[str, Any] = message.read(body)
        except (DecodeError, ValueError, UnicodeDecodeError) as error:
            raise BadValue(f"it is no {message.name}: {error}") from None
        return found

    def new_message(self) -> Any:
        """An empty one, of those that the table is of."""
        return self._by_place[0,].new()

    def _add(self, text: str) -> Any:
        """The descriptor of the last file: those before are what it imports."""
        files = _descriptors(text)
        try:
            for file in files:
                self._pool.AddSerializedFile(file.SerializeToString())
            found = self._pool.FindFileByName(files[-1].name)
        except (TypeError, KeyError, ValueError) as error:
            raise ConfigError(f"its descriptors do not fit together: {error}") from None
        if not found.message_types_by_name:
            raise ConfigError("there is no message in it")
        return found

    def _message(self, place: Sequence[int]) -> _Message:
        messages = list(self._file.message_types_by_name.values())
        return _Message(messages[place[0]])


class _Message:
    def __init__(self, descriptor: Any) -> None:
        self.name = descriptor.full_name
        self.type = _struct(descriptor, ())
        self._class = message_factory.GetMessageClass(descriptor)

    def new(self) -> Any:
        return self._class()

    def read(self, body: bytes) -> Any:
        message = self.new()
        message.ParseFromString(body)
        assert self.type.ready is not None
        return self.type.ready(message)


def _place(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """The indexes behind a schema's id: how many, and each; a single 0 stands for the first message."""
    at = 0

    def take() -> int:
        nonlocal at
        value = shift = 0
        while at < len(payload) and shift < 35:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise BadValue("the indexes of its message are cut short")

    count = take()
    if not 0 <= count <= MAX_INDEXES:
        raise BadValue(f"it names its message by {count} indexes")
    indexes = tuple(take() for _ in range(count)) or (0,)
    return indexes, payload[at:]


def _descriptors(text: str) -> list[Any]:
    stripped = "".join(text.split())
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(stripped, validate=True))
        if found.file:
            return list(found.file)
    except (binascii.Error, DecodeError, ValueError):
        pass
    return [parse_proto(text)]


def _struct(descriptor: Any, above: tuple[str, ...]) -> _Type:
    if len(above) > MAX_DEPTH:
        raise ConfigError(f"it is deeper than {MAX_DEPTH} levels")
    types = {field.name: _field(field, (*above, descriptor.full_name)) for field in descriptor.fields}
    getters = [(field.name, field.has_presence, types[field.name].ready) for field in descriptor.fields]

    def ready(message: Any) -> Any:
        found: dict[str, Any] = {}
        for name, may_lack, make in getters:
            if may_lack and not message.HasField(name):
                found[name] = None
            else:
                value = getattr(message, name)
                found[name] = value if make is None else make(value)
        return found

    return _Type(pa.struct([pa.field(name, each.arrow) for name, each in types.items()]), ready)


def _field(field: Any, above: tuple[str, ...]) -> _Type:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return _map(_one(entry.fields_by_name["key"], above), _one(entry.fields_by_name["value"], above))
    one = _one(field, above)
    if not field.is_repeated:
        return one
    make = one.ready
    return _Type(
        pa.list_(pa.field("element", one.arrow)),
        list if make is None else (lambda values: [make(value) for value in values]),
    )


def _map(key: _Type, value: _Type) -> _Type:
    make_key, make = key.ready or (lambda each: each), value.ready or (lambda each: each)
    return _Type(
        pa.map_(key.arrow, value.arrow),
        lambda found: [(make_key(each), make(found[each])) for each in found],
    )


def _one(field: Any, above: tuple[str, ...]) -> _Type:
    kind = _NAMES[field.type]
    if kind == "enum":
        words = {value.number: value.name for value in reversed(field.enum_type.values)}  # of two, the first
        return _Type(pa.string(), lambda number: words.get(number, str(number)))
    if kind not in ("message", "group"):
        return _NUMBERS[kind]
    descriptor = field.message_type
    if descriptor.full_name == "google.protobuf.Timestamp":
        return _Type(pa.timestamp("us", "UTC"), lambda time: time.seconds * 1_000_000 + time.nanos // 1000)
    if descriptor.full_name == "google.protobuf.Duration":
        return _Type(pa.int64(), lambda time: time.seconds * 1_000_000 + time.nanos // 1000)
    if descriptor.file.name == "google/protobuf/wrappers.proto":
        wrapped = _one(descriptor.fields_by_name["value"], above)
        make = wrapped.ready or (lambda value: value)
        return _Type(wrapped.arrow, lambda message: make(message.value))
    if descriptor.full_name in above or not descriptor.fields:
        return _Type(pa.binary(), lambda message: message.SerializeToString())
    return _struct(descriptor, above)
