"""The fields of one version of a message, from its class."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from catena.wire.schema import Kind, Message, Nullable, Tag, Versions


class Field(NamedTuple):
    name: str
    kind: str
    """A format character, the name of a primitive, or "message"."""
    nested: type[Message] | None
    is_array: bool
    is_nullable: bool
    tag: int | None


class Default(NamedTuple):
    """What a field is when nobody sets it: what the factory makes, or else the value."""

    value: Any
    factory: Callable[[], Any] | None

    def make(self) -> Any:
        return self.factory() if self.factory else self.value


@cache
def fields_of(message: type[Message], version: int) -> list[Field]:
    """The fields of this version, in the order of the wire."""
    hints = get_type_hints(message, include_extras=True)
    found = (_field(name, hint, version) for name, hint in hints.items())
    return [field for field in found if field is not None]


@cache
def defaults_of(message: type[Message]) -> dict[str, Default]:
    """Of every field that some version has, in the order in which the class takes them."""
    defaults = {}
    for field in msgspec.structs.fields(message):
        factory = field.default_factory if field.default_factory is not msgspec.NODEFAULT else None
        defaults[field.name] = Default(field.default, factory)
    return defaults


def least_size(message: type[Message], version: int, flexible: bool) -> int:
    """No encoding of this message has fewer bytes."""
    size = 1 if flexible else 0
    for field in fields_of(message, version):
        if field.tag is None:
            size += least_size_of_field(field, version, flexible)
    return size


def least_size_of_field(field: Field, version: int, flexible: bool) -> int:
    if field.is_array or field.kind in ("string", "bytes", "records"):
        return 1 if flexible else 2 if field.kind == "string" and not field.is_array else 4
    if field.nested is not None:
        return 1 if field.is_nullable else least_size(field.nested, version, flexible)
    return 16 if field.kind == "uuid" else struct.calcsize(">" + field.kind)


def _field(name: str, hint: Any, version: int) -> Field | None:
    nullable = False
    tag: int | None = None
    markers, hint = _unwrap(hint)
    for marker in markers:
        match marker:
            case Versions(first, last):
                if not first <= version <= last:
                    return None
            case Nullable(first):
                nullable = version >= first
            case Tag(number, first):
                if version < first:
                    return None
                tag = number
            case Kind():
                pass
    is_array = get_origin(hint) is list
    if is_array:
        more, hint = _unwrap(get_args(hint)[0])
        markers = [*markers, *more]
    kinds = [marker.name for marker in markers if isinstance(marker, Kind)]
    nested = hint if not kinds else None
    return Field(name, kinds[-1] if kinds else "message", nested, is_array, nullable, tag)


def _unwrap(hint: Any) -> tuple[list[Any], Any]:
    """Takes `Annotated` and `| None` off; returns the annotations and what is left."""
    markers: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            markers += more
        elif get_origin(hint) in (Union, UnionType):
            (hint,) = (each for each in get_args(hint) if each is not NoneType)
        else:
            return markers, hint


def is_number(field: Field) -> bool:
    return len(field.kind) == 1 and not field.is_array
