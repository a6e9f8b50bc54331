"""Values into columns of another type, only if nothing is lost: else they are dead letters. Pure.

    int, float, timestamp     into a wider one; int into double where a double can tell it from its neighbours
    struct                    field by field: each into the column that holds it (`naming`), whatever that is called;
                              one that the values lack is null; one that no column holds, and that is not null, does
                              not fit
    list, map                 what is in it
    anything else             into its own type
    null                      into anything

Nothing is read into another kind: no text into a number, no number into a time or into true and false. Whole columns
are done at a time; single values are looked at only where some of a column's do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catena.tables.naming import bare, is_bare, is_list, source_of


class Fitted(NamedTuple):
    column: Any
    """Null where a value does not fit."""
    reasons: Mapping[int, str]
    """Why the value at this place does not fit."""


def fit(column: Any, wanted: pa.DataType) -> Fitted:
    """MUST NOT raise, whatever the values are."""
    return _fit(column, wanted, "")


def as_now(column: Any, wanted: pa.DataType) -> Any:
    """A column of a file of the table, which may lack what was added within it since, as the table has it now."""
    if column.type.equals(wanted):
        return column
    fitted = fit(column, bare(wanted))
    return column.cast(wanted) if fitted.reasons else fitted.column  # files of other programs have types of their own


def _fit(column: Any, wanted: pa.DataType, where: str) -> Fitted:
    kind = column.type
    if kind.equals(wanted) and is_bare(wanted):
        return Fitted(column, {})
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        return _fit_struct(column, wanted, where)
    if is_list(kind) and is_list(wanted):
        return _fit_list(column, wanted, where)
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        return _fit_map(column, wanted, where)
    if not _is_wider(kind, wanted):
        reason = f"{f'{where} ' if where else 'it '}is {kind}, not {wanted}".removeprefix(".")
        return Fitted(pa.nulls(len(column), wanted), dict.fromkeys(_places(column.is_valid()), reason))
    try:
        return Fitted(column.cast(wanted), {})
    except pa.ArrowException:
        return _fit_one_by_one(column, wanted)


def _fit_one_by_one(column: Any, wanted: pa.DataType) -> Fitted:
    parts, reasons = [], {}
    for place in range(len(column)):
        try:
            parts.append(column.slice(place, 1).cast(wanted))
        except pa.ArrowException:
            reasons[place] = f"{_shown(column[place])} is not exact as {wanted}"
            parts.append(pa.nulls(1, wanted))
    return Fitted(pa.concat_arrays(parts), reasons)


def _fit_struct(column: pa.StructArray, wanted: pa.DataType, where: str) -> Fitted:
    # Null in each where the whole is null, as opposed to the fields themselves.
    children = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
    parts: list[Any] = []
    reasons: dict[int, str] = {}
    for field in wanted:
        name = source_of(field)
        if name not in children:
            parts.append(pa.nulls(len(column), field.type))
            continue
        fitted = _fit(children.pop(name), field.type, f"{where}.{name}")
        parts.append(fitted.column)
        _note(reasons, fitted.reasons)
    for name, child in children.items():
        reason = f"the column has no field {f'{where}.{name}'.removeprefix('.')}"
        _note(reasons, dict.fromkeys(_places(child.is_valid()), reason))
    made = pa.StructArray.from_arrays(parts, fields=list(wanted), mask=_nulls(column, reasons))
    return Fitted(made, reasons)


def _fit_list(column: Any, wanted: pa.DataType, where: str) -> Fitted:
    offsets = _offsets(column)
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    fitted = _fit(values, wanted.value_type, f"{where}[]")
    reasons = _of_lists(column, offsets, fitted.reasons)
    is_large = pa.types.is_large_list(wanted)
    at = pa.array(offsets - offsets[0], pa.int64() if is_large else pa.int32())
    make = pa.LargeListArray.from_arrays if is_large else pa.ListArray.from_arrays
    return Fitted(make(at, fitted.column, type=wanted, mask=_nulls(column, reasons)), reasons)


def _fit_map(column: pa.MapArray, wanted: pa.DataType, where: str) -> Fitted:
    offsets = _offsets(column)
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys = _fit(column.keys.slice(first, count), wanted.key_type, f"{where}{{}}")
    items = _fit(column.items.slice(first, count), wanted.item_type, f"{where}{{}}")
    reasons = _of_lists(column, offsets, {**items.reasons, **keys.reasons})
    # No key can be null, also of an entry that does not fit: those are left out, with all others.
    if reasons:
        good = pc.invert(pc.is_in(pa.array(range(len(column))), pa.array(sorted(reasons), pa.int64())))
        kept = _fit_map(column.filter(good), wanted, where).column
        at = pc.if_else(good, pc.subtract(pc.cumulative_sum(good.cast(pa.int64())), 1), pa.scalar(None, pa.int64()))
        return Fitted(kept.take(at), reasons)
    at = pa.array(offsets - first, pa.int32())
    made = pa.MapArray.from_arrays(at, keys.column, items.column, type=wanted, mask=_nulls(column, reasons))
    return Fitted(made, reasons)


def _is_wider(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Of types that have none within them: Arrow's own cast loses nothing then, or is refused by Arrow."""
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


def _note(reasons: dict[int, str], more: Mapping[int, str]) -> None:
    for place, reason in more.items():
        reasons.setdefault(place, reason)


def _offsets(column: Any) -> Any:
    return np.asarray(column.offsets).astype(np.int64)


def _of_lists(column: Any, offsets: Any, reasons: Mapping[int, str]) -> dict[int, str]:
    """By the list that holds the value; one that is null holds nothing, whatever lies there."""
    if not reasons:
        return {}
    found: dict[int, str] = {}
    for place, reason in sorted(reasons.items()):
        owner = int(np.searchsorted(offsets, offsets[0] + place, side="right")) - 1
        if column[owner].is_valid:
            found.setdefault(owner, reason)
    return found


def _nulls(column: Any, reasons: Mapping[int, str]) -> pa.BooleanArray:
    mask = np.array(column.is_null())
    if reasons:
        mask[list(reasons)] = True
    return pa.array(mask)


def _places(flags: pa.BooleanArray) -> list[int]:
    return [int(place) for place in np.flatnonzero(np.asarray(flags))]


def _shown(value: Any) -> str:
    try:
        return str(value)
    except (OverflowError, ValueError):  # a time that no calendar has
        return "it"
