"""JSON values by a JSON schema: its `properties` become columns.

    string                     string; of format date-time a timestamp, of date a date; contentEncoding base64: binary
    integer, number, boolean   long, double, boolean
    array, object              list, struct
    anything else              JSON as text: no type, several types, an object without properties

A field that is missing or null is null. One that the schema does not have is left out.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa

from catena.errors import ConfigError
from catena.tables.values.base import ValueSpec
from catena.tables.values.typed import MAX_DEPTH, BadValue, TypedDecoder

_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Type(NamedTuple):
    arrow: pa.DataType
    python: Any
    """What msgspec decodes it to."""
    ready: Callable[[Any], Any] | None = None
    """From that to what Arrow takes; None: it is the same."""


_SIMPLE = {
    "integer": _Type(pa.int64(), _INT64),
    "number": _Type(pa.float64(), float),
    "boolean": _Type(pa.bool_(), bool),
    "string": _Type(pa.string(), str),
}
_FORMATS = {
    "date-time": _Type(pa.timestamp("us", "UTC"), datetime.datetime),
    "date": _Type(pa.date32(), datetime.date),
}


class JsonDecoder(TypedDecoder):
    def __init__(self, spec: ValueSpec) -> None:
        super().__init__(spec, JsonSchema)


class JsonSchema:
    def __init__(self, text: str) -> None:
        try:
            schema = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ConfigError(f"it is no JSON object: {error}") from None
        top = _typed(schema, schema, ())
        if not pa.types.is_struct(top.arrow):
            raise ConfigError("a JSON schema of values is that of an object with properties")
        self.fields = list(top.arrow)
        self._ready = top.ready
        self._decoder = msgspec.json.Decoder(top.python)

    def read(self, payload: bytes, is_framed: bool) -> Mapping[str, Any]:  # noqa: ARG002 - part of the contract
        try:
            value = self._decoder.decode(payload)
        except RecursionError:
            raise BadValue("it is nested too deeply") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadValue(str(error)) from None
        found: Mapping[str, Any] = value if self._ready is None else self._ready(value)
        return found


def _typed(schema: Any, whole: Mapping[str, Any], above: tuple[str, ...]) -> _Type:
    if len(above) > MAX_DEPTH or not isinstance(schema, dict):
        return _text()
    if isinstance(reference := schema.get("$ref"), str):
        # Within itself it has no end.
        return _text() if reference in above else _typed(_resolved(reference, whole), whole, (*above, reference))
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    match kind:
        case "string" if schema.get("contentEncoding") == "base64":
            return _Type(pa.binary(), bytes)
        case "string":
            return _FORMATS.get(str(schema.get("format")), _SIMPLE["string"])
        case "object" if isinstance(schema.get("properties"), dict) and schema["properties"]:
            return _object(schema["properties"], whole, above)
        case "array" if "items" in schema:
            return _array(_typed(schema["items"], whole, (*above, "[]")))
        case _:
            return _SIMPLE.get(str(kind)) or _text()


def _object(properties: Mapping[str, Any], whole: Mapping[str, Any], above: tuple[str, ...]) -> _Type:
    types = {name: _typed(schema, whole, (*above, name)) for name, schema in properties.items()}
    names = list(types)
    # Attributes have names of our own: a struct matches any name in JSON, and a TypedDict only those of ASCII.
    attributes = {f"field_{number}": name for number, name in enumerate(names)}
    python = _struct(attributes, types)
    arrow = pa.struct([pa.field(name, each.arrow) for name, each in types.items()])
    readies = {name: each.ready for name, each in types.items() if each.ready is not None}

    def ready(value: Any) -> Any:
        made = dict(zip(names, msgspec.structs.astuple(value), strict=True))
        for name, make in readies.items():
            if made[name] is not None:
                made[name] = make(made[name])
        return made

    return _Type(arrow, python, ready)


def _struct(attributes: Mapping[str, str], types: Mapping[str, _Type]) -> Any:
    fields = [(attribute, types[name].python | None, None) for attribute, name in attributes.items()]
    try:
        return msgspec.defstruct("Fields", fields, rename=attributes)
    except ValueError as error:
        raise ConfigError(f"a field has a name that can't be read: {error}") from None


def _array(items: _Type) -> _Type:
    arrow = pa.list_(pa.field("element", items.arrow))
    make = items.ready
    if make is None:
        return _Type(arrow, list[items.python | None])  # type: ignore[name-defined]
    return _Type(
        arrow,
        list[items.python | None],  # type: ignore[name-defined]
        lambda value: [None if each is None else make(each) for each in value],
    )


def _text() -> _Type:
    return _Type(pa.string(), Any, lambda value: msgspec.json.encode(value).decode())


def _resolved(reference: str, whole: Mapping[str, Any]) -> Any:
    found: Any = whole
    for part in reference.removeprefix("#/").split("/") if reference != "#" else []:
        found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        raise ConfigError(f"$ref {reference!r} leads nowhere in it")
    return found
