"""Values of Arrow as Python has them, also those that it has not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def values_of(column: Any) -> list[Any]:
    """Times that no calendar has are numbers."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        pass
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        parts = [values_of(column.field(number)) for number in range(len(names))]
        valid = column.is_valid().to_pylist()
        rows = zip(*parts, strict=True)
        return [dict(zip(names, row, strict=True)) if is_row else None for row, is_row in zip(rows, valid, strict=True)]
    if pa.types.is_temporal(column.type):
        return list(column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist())
    return [None if each.values is None else values_of(each.values) for each in column]  # lists and maps
