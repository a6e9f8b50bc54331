"""Which field of values each column holds, and what columns there are once values have more fields. Pure.

A column says by itself whose it is: its metadata has the field's own name, at the top and within structs, lists and
maps. That lives with the table, so it is the same for whoever comes next, and no column ever changes its field:

    a field that has a column                       that one, whatever the field is called
    one that has none                               its name, where each character that is no letter, digit or _ is
                                                    a _; with as many _ behind it as it takes to be the only one
    a column that says nothing                      is from before names were kept, or somebody else has added it: the
                                                    first field that is to have its name takes it

Names that differ in case only are one name to many who read tables, so here they are the same, too.

Columns are not dropped, and keep their types; a struct may get more fields, wherever it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

FIELD = b"catena.field"
_NOT_A_NAME = re.compile(r"\W")


def field_of(column: pa.Field) -> str | None:
    """The field that the column says it holds."""
    found = (column.metadata or {}).get(FIELD)
    return None if found is None else found.decode()


def source_of(column: pa.Field) -> str:
    """The name of what it holds in values."""
    found = field_of(column)
    return column.name if found is None else found


def labelled(column: pa.Field, field: str) -> pa.Field:
    return column.with_metadata({**(column.metadata or {}), FIELD: field.encode()})


def grown(columns: Sequence[pa.Field], fields: Iterable[pa.Field], reserved: Collection[str] = ()) -> list[pa.Field]:
    """The columns, with all that the fields need; those that are new come last. `reserved` can't be their names."""
    found = list(columns)
    known = {name: place for place, column in enumerate(found) if (name := field_of(column)) is not None}
    open_ = {column.name: place for place, column in enumerate(found) if field_of(column) is None}
    taken = {name.lower() for name in (*reserved, *(column.name for column in found))}
    for field in fields:
        place = known.get(field.name)
        name = "" if place is not None else _name_for(field.name, open_, taken)
        if place is None:
            place = open_.pop(name, None)
        if place is None:
            taken.add(name.lower())
            known[field.name] = len(found)
            found.append(labelled(pa.field(name, _named(field.type)), field.name))
        else:
            column = found[place]
            found[place] = labelled(column.with_type(_wide(column.type, field.type)), field.name)
    return found


def bare(kind: pa.DataType) -> pa.DataType:
    """The same type with nothing said of its fields: they are what they are called, as in files."""
    return _rebuilt(kind, lambda fields: [pa.field(field.name, bare(field.type)) for field in fields])


def is_bare(kind: pa.DataType) -> bool:
    """Whether all its fields are called what they hold."""
    return all(source_of(field) == field.name and is_bare(field.type) for field in within(kind))


def within(kind: pa.DataType) -> list[pa.Field]:
    """The fields right below a struct, a list or a map."""
    if pa.types.is_struct(kind):
        return list(kind)
    if is_list(kind):
        return [kind.value_field]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return []


class Addition(NamedTuple):
    path: tuple[str, ...]
    """Names of columns from the top down; `element` and `value` stand for what lists and maps hold."""
    column: Any


def additions(now: Iterable[pa.Field], wanted: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[Addition]:
    """What `wanted` has more than `now`, of which it has grown."""
    known = {column.name: column for column in now}
    for column in wanted:
        path = (*above, column.name)
        if column.name not in known:
            yield Addition(path, column)
        else:
            yield from _added_within(known[column.name].type, column.type, path)


def _added_within(now: pa.DataType, wanted: pa.DataType, path: tuple[str, ...]) -> Iterator[Addition]:
    if pa.types.is_struct(now):
        yield from additions(list(now), list(wanted), path)
    elif is_list(now):
        yield from _added_within(now.value_type, wanted.value_type, (*path, "element"))
    elif pa.types.is_map(now):
        yield from _added_within(now.item_type, wanted.item_type, (*path, "value"))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _name_for(field: str, open_: Collection[str], taken: Collection[str]) -> str:
    """One that is free, or that of a column which nobody has claimed."""
    if field in open_:
        return field
    name = _NOT_A_NAME.sub("_", field) or "_"
    while name not in open_ and name.lower() in taken:
        name += "_"
    return name


def _named(kind: pa.DataType) -> pa.DataType:
    """As a new column has it."""
    return _rebuilt(kind, lambda fields: grown([], fields))


def _rebuilt(kind: pa.DataType, of_struct: Callable[[list[pa.Field]], list[pa.Field]]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(of_struct(list(kind)))
    if is_list(kind):
        element = pa.field(kind.value_field.name, _rebuilt(kind.value_type, of_struct))
        return pa.large_list(element) if pa.types.is_large_list(kind) else pa.list_(element)
    if pa.types.is_map(kind):
        return pa.map_(_rebuilt(kind.key_type, of_struct), _rebuilt(kind.item_type, of_struct))
    return kind


def _wide(now: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """`now`, with the fields that `wanted` has more within it. What is not alike stays as it is."""
    types = pa.types
    if types.is_struct(now) and types.is_struct(wanted):
        return pa.struct(grown(list(now), list(wanted)))
    if types.is_list(now) and types.is_list(wanted):
        return pa.list_(now.value_field.with_type(_wide(now.value_type, wanted.value_type)))
    if types.is_map(now) and types.is_map(wanted):
        return pa.map_(now.key_field, now.item_field.with_type(_wide(now.item_type, wanted.item_type)))
    return now
