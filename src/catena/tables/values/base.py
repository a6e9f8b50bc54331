"""What is in a record's value, to columns: the contract of all formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from catena.tables.settings import TableConfig, ValueFormat


class ValueSpec(msgspec.Struct, frozen=True):
    """How values are to be read; goes to tasks."""

    format: ValueFormat = "raw"
    schema: str = ""
    schemas: dict[int, str] = {}

    @classmethod
    def of(cls, config: TableConfig) -> ValueSpec:
        return cls(config.value_format, config.value_schema, config.schemas)


class Decoded(NamedTuple):
    """Of values, one entry for each."""

    columns: Mapping[str, Any]
    """Arrow arrays by the name of their field; null where a value is bad, or has no such field."""
    reasons: Mapping[int, str]
    """Why the value at this place is bad."""


class Decoder(Protocol):
    @property
    def fields(self) -> Sequence[Any]:
        """Of values: Arrow fields by their own names, of types that every table has. `naming` makes columns of them."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """A null stays null in all columns. MUST NOT raise, whatever is in a value."""
