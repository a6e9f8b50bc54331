"""What formats with schemas share: framing by a schema registry, fields of several schemas, and rows to Arrow. Pure.

**Framing.** A schema registry's client puts 5 bytes in front of a value: 0, and the schema's id as 4 bytes. Where
there is table.schemas, every value has to have such a frame, and is read by the schema of its id; any other is bad.
Where there is table.value.schema alone, values are read by that, with a frame of whatever id or without one. A value
that can be read in both ways is bad: only Avro has such, since neither JSON nor Protobuf begins with 0.

**Fields** are those of all schemas together, by name, also within structs; of the same name, the widest type, or that
of the first where none is, and then values of the others fit or do not (see `fitting`). So a newer schema with more
fields adds some. Which columns they become, `naming` says.

**Rows** become Arrow all at once. Where that fails, halves are tried, and so on, until the bad rows are alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from catena.errors import ConfigError
from catena.tables.naming import is_list
from catena.tables.values.base import Decoded, ValueSpec
from catena.tables.values.fitting import fit

FRAME_BYTES = 5
MAX_DEPTH = 16
_WIDER: Mapping[tuple[pa.DataType, pa.DataType], pa.DataType] = {
    (pa.int32(), pa.int64()): pa.int64(),
    (pa.int64(), pa.int32()): pa.int64(),
    (pa.float32(), pa.float64()): pa.float64(),
    (pa.float64(), pa.float32()): pa.float64(),
}


class BadValue(Exception):
    """Says why."""


class ValueSchema(Protocol):
    """One schema."""

    @property
    def fields(self) -> Sequence[Any]:
        """Arrow fields, by the names that values have them under."""

    def read(self, payload: bytes, is_framed: bool) -> Mapping[str, Any]:
        """Values of the fields as `pyarrow.array` takes them. Raises BadValue where it knows why."""


class _Reader(NamedTuple):
    schema: ValueSchema
    struct: pa.DataType


class _Row(NamedTuple):
    place: int
    value: Mapping[str, Any]


class TypedDecoder:
    def __init__(self, spec: ValueSpec, parse: Callable[[str], ValueSchema]) -> None:
        if not spec.schema and not spec.schemas:
            raise ConfigError(f"topic config table.value.schema: {spec.format} values need a schema, or table.schemas")
        self._own = _reader("table.value.schema", spec.schema, parse) if spec.schema else None
        self._by_id = {
            number: _reader(f"table.schemas, id {number}", text, parse) for number, text in sorted(spec.schemas.items())
        }
        readers = [*([self._own] if self._own else []), *self._by_id.values()]
        self._types = _merged(readers)
        self.fields = [pa.field(name, kind) for name, kind in self._types.items()]

    def decode(self, values: pa.BinaryArray) -> Decoded:
        rows: dict[int, list[_Row]] = {}
        readers: dict[int, _Reader] = {}
        reasons: dict[int, str] = {}
        for place, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                reader, row = self._read(value)
                readers[id(reader)] = reader
                rows.setdefault(id(reader), []).append(_Row(place, row))
            except BadValue as error:
                reasons[place] = str(error)
            except Exception as error:  # libraries raise whatever a value led them to, and none may stop a table
                reasons[place] = f"it can't be read: {type(error).__name__}: {error}"
        parts = [self._columns(readers[key], rows[key], reasons) for key in rows]
        return Decoded(self._in_place(parts, len(values)), reasons)

    def _read(self, value: bytes) -> tuple[_Reader, Mapping[str, Any]]:
        number = (
            int.from_bytes(value[1:FRAME_BYTES], "big") if value[:1] == b"\0" and len(value) >= FRAME_BYTES else None
        )
        if self._own is None or self._by_id:
            if number is None:
                raise BadValue("it names no schema")
            if number not in self._by_id:
                raise BadValue(f"schema id {number} is not in table.schemas")
            reader = self._by_id[number]
            return reader, reader.schema.read(value[FRAME_BYTES:], True)
        schema = self._own.schema
        if number is None:
            return self._own, schema.read(value, False)
        if (as_it_is := _tried(schema, value, False)) is None:
            return self._own, schema.read(value[FRAME_BYTES:], True)
        if _tried(schema, value[FRAME_BYTES:], True) is not None:
            raise BadValue("it makes sense with and without the id of a schema in front: table.schemas would tell")
        return self._own, as_it_is

    def _columns(
        self, reader: _Reader, rows: Sequence[_Row], reasons: dict[int, str]
    ) -> tuple[list[int], dict[str, Any]]:
        """Places, and the columns of the rows at them."""
        struct = _as_struct(rows, reader.struct, reasons)
        columns = {}
        for number, name in enumerate(field.name for field in reader.schema.fields):
            column = struct.field(number)
            wanted = self._types[name]
            columns[name] = column if column.type.equals(wanted) else _cast(column, wanted, rows, name, reasons)
        return [row.place for row in rows], columns

    def _in_place(self, parts: Sequence[tuple[list[int], dict[str, Any]]], count: int) -> dict[str, Any]:
        places = [place for each, _ in parts for place in each]
        at: list[int | None] = [None] * count
        for number, place in enumerate(places):
            at[place] = number
        order = pa.array(at, pa.int64())
        found = {}
        for name, kind in self._types.items():
            arrays = [columns[name] if name in columns else pa.nulls(len(each), kind) for each, columns in parts]
            found[name] = pa.concat_arrays(arrays).take(order) if arrays else pa.nulls(count, kind)
        return found


def _tried(schema: ValueSchema, payload: bytes, is_framed: bool) -> Mapping[str, Any] | None:
    try:
        return schema.read(payload, is_framed)
    except Exception:  # whatever it is: not so
        return None


def _reader(place: str, text: str, parse: Callable[[str], ValueSchema]) -> _Reader:
    try:
        schema = parse(text)
    except ConfigError as error:
        raise ConfigError(f"topic config {place}: {error}") from None
    except Exception as error:  # libraries raise whatever a schema that makes no sense led them to
        raise ConfigError(f"topic config {place}: it makes no sense: {type(error).__name__}: {error}") from error
    if not schema.fields:
        raise ConfigError(f"topic config {place}: there is no field in it")
    return _Reader(schema, pa.struct(list(schema.fields)))


def _merged(readers: Sequence[_Reader]) -> dict[str, pa.DataType]:
    whole = functools.reduce(_widest, (reader.struct for reader in readers))
    return {field.name: field.type for field in whole}


def _widest(known: pa.DataType, more: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(more):
        types = {field.name: field.type for field in known}
        for field in more:
            types[field.name] = _widest(types.get(field.name, field.type), field.type)
        return pa.struct(list(types.items()))
    if is_list(known) and is_list(more):
        return pa.list_(known.value_field.with_type(_widest(known.value_type, more.value_type)))
    if pa.types.is_map(known) and pa.types.is_map(more):
        return pa.map_(_widest(known.key_type, more.key_type), _widest(known.item_type, more.item_type))
    return _WIDER.get((known, more), known)


def _as_struct(rows: Sequence[_Row], kind: pa.DataType, reasons: dict[int, str]) -> pa.StructArray:
    try:
        return pa.array([row.value for row in rows], kind)
    except Exception as error:  # as above
        if len(rows) == 1:
            reasons[rows[0].place] = f"it does not fit its columns: {error}"
            return pa.nulls(1, kind)
    middle = len(rows) // 2
    return pa.concat_arrays([_as_struct(rows[:middle], kind, reasons), _as_struct(rows[middle:], kind, reasons)])


def _cast(column: Any, wanted: pa.DataType, rows: Sequence[_Row], name: str, reasons: dict[int, str]) -> Any:
    found = fit(column, wanted)
    for number, reason in found.reasons.items():
        reasons.setdefault(rows[number].place, f"column {name} is {wanted} by another schema: {reason}")
    return found.column
