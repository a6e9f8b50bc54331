"""Values into columns of another type, only if nothing is lost: else they are dead letters. Pure.

    int, float, timestamp     into a wider one; int into double where a double can tell it from its neighbours
    struct                    field by field, by name: one that the values lack is null; one that the column lacks, and
                              that is not null, does not fit
    list, map                 what is in it
    anything else             into its own type
    null                      into anything

Nothing is read into another kind: no text into a number, no number into a time or into true and false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

EXACT_IN_DOUBLE = 2**53


class Fitted(NamedTuple):
    column: Any
    """Null where a value does not fit."""
    reasons: Mapping[int, str]
    """Why the value at this place does not fit."""


def fit(column: Any, wanted: pa.DataType) -> Fitted:
    """MUST NOT raise, whatever the values are."""
    if column.type.equals(wanted):
        return Fitted(column, {})
    if _is_like(column.type, wanted):
        try:
            return Fitted(column.cast(wanted), {})
        except pa.ArrowException:
            pass  # not all of them fit
    reasons: dict[int, str] = {}
    parts = [_fit_one(column.slice(place, 1), wanted, place, reasons) for place in range(len(column))]
    return Fitted(pa.concat_arrays(parts) if parts else pa.nulls(0, wanted), reasons)


def _fit_one(one: Any, wanted: pa.DataType, place: int, reasons: dict[int, str]) -> Any:
    try:
        value = one[0].as_py()
        reason = next(_misfits(value, one.type, wanted, ""), "")
        if not reason:
            return pa.array([value], wanted)
    except Exception as error:  # Arrow and Python do not have the same values in all types
        reason = f"{type(error).__name__}: {error}"
    reasons[place] = reason
    return pa.nulls(1, wanted)


def _is_like(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Arrow's own cast loses nothing then, or is refused by Arrow."""
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        return [field.name for field in found] == [field.name for field in wanted] and all(
            _is_like(mine.type, its.type) for mine, its in zip(found, wanted, strict=True)
        )
    if _is_list(found) and _is_list(wanted):
        return _is_like(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _is_like(found.key_type, wanted.key_type) and _is_like(found.item_type, wanted.item_type)
    return _is_wider(found, wanted)


def _is_wider(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Of types that have none within them."""
    types = pa.types
    if found.equals(wanted):
        return True
    if types.is_signed_integer(found):
        is_wide = types.is_signed_integer(wanted) and wanted.bit_width >= found.bit_width
        return bool(is_wide or wanted.equals(pa.float64()))
    if types.is_floating(found):
        return bool(types.is_floating(wanted) and wanted.bit_width >= found.bit_width)
    if types.is_timestamp(found):
        return bool(types.is_timestamp(wanted) and (found.tz is None) == (wanted.tz is None))
    if types.is_string(found) or types.is_large_string(found):
        return bool(types.is_string(wanted) or types.is_large_string(wanted))
    if types.is_binary(found) or types.is_large_binary(found):
        return bool(types.is_binary(wanted) or types.is_large_binary(wanted))
    return False


def _misfits(value: Any, found: pa.DataType, wanted: pa.DataType, where: str) -> Iterator[str]:
    """Why this value does not fit."""
    if value is None:
        return
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        types = {field.name: field.type for field in wanted}
        for field in found:
            path = f"{where}.{field.name}"
            if field.name in types:
                yield from _misfits(value[field.name], field.type, types[field.name], path)
            elif value[field.name] is not None:
                yield f"the column has no field {path.removeprefix('.')}"
    elif _is_list(found) and _is_list(wanted):
        for each in value:
            yield from _misfits(each, found.value_type, wanted.value_type, f"{where}[]")
    elif pa.types.is_map(found) and pa.types.is_map(wanted):
        for key, each in value:
            yield from _misfits(key, found.key_type, wanted.key_type, f"{where}{{}}")
            yield from _misfits(each, found.item_type, wanted.item_type, f"{where}{{}}")
    elif not _is_wider(found, wanted):
        yield f"{f'{where} ' if where else 'it '}is {found}, not {wanted}".removeprefix(".")
    elif isinstance(value, int) and pa.types.is_floating(wanted) and abs(value) > EXACT_IN_DOUBLE:
        yield f"{value} is not exact as {wanted}"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
