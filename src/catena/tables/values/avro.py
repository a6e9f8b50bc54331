"""Avro values by an Avro schema: the fields of its record become columns.

    boolean, int, long, float, double, string, bytes    the same; fixed is bytes, an enum its word
    record, array, map                                  struct, list, map
    a union with null                                   what else is in it, or null
    any other union                                     JSON as text
    decimal, date, timestamp-*, uuid, time-*            decimal, date, timestamp, and text for the last two

A value that is not a record is one column, `value`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa

from catena.errors import ConfigError
from catena.tables.columns import VALUE
from catena.tables.values.base import ValueSpec
from catena.tables.values.typed import MAX_DEPTH, BadValue, TypedDecoder


class _Type(NamedTuple):
    arrow: pa.DataType
    ready: Callable[[Any], Any] | None = None
    """From what fastavro gives to what Arrow takes; None: it is the same. Never asked for null."""


_TIME = _Type(pa.timestamp("us", "UTC"))
_TEXT = _Type(pa.string(), str)
_PRIMITIVE = {
    "null": _Type(pa.string()),
    "boolean": _Type(pa.bool_()),
    "int": _Type(pa.int32()),
    "long": _Type(pa.int64()),
    "float": _Type(pa.float32()),
    "double": _Type(pa.float64()),
    "bytes": _Type(pa.binary()),
    "string": _Type(pa.string()),
    "enum": _Type(pa.string()),
    "fixed": _Type(pa.binary()),
}
_LOGICAL = {
    "date": _Type(pa.date32()),
    "timestamp-millis": _TIME,
    "timestamp-micros": _TIME,
    "local-timestamp-millis": _TIME,
    "local-timestamp-micros": _TIME,
    "time-millis": _TEXT,
    "time-micros": _TEXT,
    "uuid": _TEXT,
}


class AvroDecoder(TypedDecoder):
    def __init__(self, spec: ValueSpec) -> None:
        super().__init__(spec, AvroSchema)


class AvroSchema:
    def __init__(self, text: str) -> None:
        try:
            self._named: dict[str, Any] = {}
            parsed = fastavro.parse_schema(json.loads(text), self._named)
        except (ValueError, TypeError, KeyError, AttributeError, fastavro.schema.SchemaParseException) as error:
            raise ConfigError(f"it is no Avro schema: {type(error).__name__}: {error}") from None
        self._schema = parsed
        self._is_record = isinstance(parsed, dict) and parsed.get("type") == "record"
        top = self._typed(parsed, ())
        self._ready = top.ready
        self.fields = list(top.arrow) if self._is_record else [pa.field(VALUE, top.arrow)]

    def read(self, payload: bytes, is_framed: bool) -> Mapping[str, Any]:  # noqa: ARG002 - part of the contract
        data = io.BytesIO(payload)
        try:
            value: Any = fastavro.schemaless_reader(data, self._schema, None)
            if value is not None and self._ready is not None:
                value = self._ready(value)
        except Exception as error:  # fastavro raises whatever its damaged input led it to
            raise BadValue(f"it is no Avro of this schema: {type(error).__name__}: {error}") from None
        if data.tell() != len(payload):
            raise BadValue(f"it is no Avro of this schema: {len(payload) - data.tell()} bytes are left over")
        found: Mapping[str, Any] = value if self._is_record else {VALUE: value}
        return found

    def _typed(self, schema: Any, above: tuple[str, ...]) -> _Type:
        if len(above) > MAX_DEPTH:
            raise ConfigError(f"it is deeper than {MAX_DEPTH} levels")
        if isinstance(schema, list):
            return self._union(schema, above)
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return _PRIMITIVE[schema]
            schema = self._named[schema]
        kind = schema["type"]
        if isinstance(kind, list | dict):
            return self._typed(kind, above)
        if schema.get("logicalType") == "decimal":
            precision = int(schema["precision"])
            if precision > 38:
                raise ConfigError(f"a decimal has up to 38 digits in a table, not {precision}")
            return _Type(pa.decimal128(precision, int(schema.get("scale", 0))))
        if schema.get("logicalType") in _LOGICAL:
            return _LOGICAL[schema["logicalType"]]
        match kind:
            case "record" | "error":
                return self._record(schema, above)
            case "array":
                return _list_of(self._typed(schema["items"], (*above, "[]")))
            case "map":
                return _map_of(self._typed(schema["values"], (*above, "{}")))
            case _:
                return _PRIMITIVE[kind] if kind in _PRIMITIVE else self._typed(kind, above)

    def _record(self, schema: Mapping[str, Any], above: tuple[str, ...]) -> _Type:
        name = schema["name"]
        if name in above:
            return _Type(pa.string(), _as_json)  # within itself it has no end
        if above and not schema["fields"]:
            return _Type(pa.string(), _as_json)  # no file can hold a struct without fields
        types = {field["name"]: self._typed(field["type"], (*above, name)) for field in schema["fields"]}
        arrow = pa.struct([pa.field(each, found.arrow) for each, found in types.items()])
        readies = {each: found.ready for each, found in types.items() if found.ready is not None}

        def ready(value: Any) -> Any:
            return {**value, **{each: make(value[each]) for each, make in readies.items() if value[each] is not None}}

        return _Type(arrow, ready if readies else None)

    def _union(self, schema: list[Any], above: tuple[str, ...]) -> _Type:
        others = [each for each in schema if each != "null"]
        return self._typed(others[0], above) if len(others) == 1 else _Type(pa.string(), _as_json)


def _list_of(items: _Type) -> _Type:
    make = items.ready
    ready = None if make is None else (lambda value: [None if each is None else make(each) for each in value])
    return _Type(pa.list_(pa.field("element", items.arrow)), ready)


def _map_of(values: _Type) -> _Type:
    make = values.ready or (lambda value: value)

    def ready(value: Mapping[str, Any]) -> Any:
        return [(key, None if each is None else make(each)) for key, each in value.items()]

    return _Type(pa.map_(pa.string(), values.arrow), ready)


def _as_json(value: Any) -> str:
    return json.dumps(value, default=lambda other: other.hex() if isinstance(other, bytes) else str(other))
