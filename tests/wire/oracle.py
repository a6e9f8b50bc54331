"""kio, an independent implementation of the protocol: the same message in its types, and its bytes.

Its reader is for bytes of our own making only. A length that is not true makes it ask for memory that nobody has, and
that ends the process.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
import uuid
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from catena.wire.schema import NO_ID, Message
from tests.wire.messages import Case

NONE_STANDS_FOR_A_VALUE = ("uuid", "datetime_i64")
"""For the id of zeros, and for -1."""
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def entity_type(case: Case) -> Any:
    load = load_request_schema if case.message is case.api.request else load_response_schema
    return load(case.api.key, case.version)


def entity(kio_type: Any, message: Message) -> Any:
    """The message in kio's types. Fails if one of the two has a field that the other does not have."""
    hints = typing.get_type_hints(kio_type)
    values = {}
    for field in dataclasses.fields(kio_type):
        kafka_type = field.metadata.get("kafka_type", "")
        values[field.name] = _value(hints[field.name], kafka_type, getattr(message, our_name(field.name, kafka_type)))
    return kio_type(**values)


def our_name(name: str, kafka_type: str) -> str:
    is_time = kafka_type.startswith(("timedelta", "datetime")) and not name.endswith("timestamp")
    return f"{name}_ms" if is_time else name


class KioField(NamedTuple):
    name: str
    tag: int | None
    is_array: bool
    is_nullable: bool
    nested: Any


def fields(kio_type: Any) -> list[KioField]:
    """As we would name and describe them."""
    hints = typing.get_type_hints(kio_type)
    found = []
    for field in dataclasses.fields(kio_type):
        kafka_type = field.metadata.get("kafka_type", "")
        options = typing.get_args(hints[field.name]) if is_union(hints[field.name]) else [hints[field.name]]
        found.append(
            KioField(
                our_name(field.name, kafka_type),
                field.metadata.get("tag"),
                any(typing.get_origin(option) is tuple for option in options),
                types.NoneType in options and kafka_type not in NONE_STANDS_FOR_A_VALUE,
                nested_type(hints[field.name]) if not kafka_type else None,
            )
        )
    return found


def is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def nested_type(hint: Any) -> Any:
    """What is in a hint such as `tuple[X, ...] | None`."""
    while is_union(hint) or typing.get_origin(hint) is tuple:
        hint = next(each for each in typing.get_args(hint) if each is not types.NoneType)
    return hint


def write(value: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(value))(out, value)
    return out.getvalue()


def read(kio_type: Any, data: bytes) -> tuple[Any, int]:
    value, size = entity_reader(kio_type)(data, 0)
    return value, size


def _value(hint: Any, kafka_type: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list) and kafka_type != "records":
        return tuple(_value(hint, kafka_type, item) for item in value)
    match kafka_type:
        case "":
            return entity(nested_type(hint), value)
        case "records":
            return b"".join(value)
        case "uuid":
            return None if value == NO_ID else uuid.UUID(value)
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
    return value
