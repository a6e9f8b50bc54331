"""Rows to Parquet files of bounded size, one day in each, under names that nobody else draws.

Files grow in memory and are stored when they are full; so many days are open at a time, and the one with most bytes
makes room for another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catena.objects.base import ObjectStore
from catena.runtime import Entropy
from catena.tables.columns import DAY, METADATA, OFFSET, PARTITION, TIMESTAMP
from catena.tables.committer import DataFile, Span
from catena.types import ABSENT

GROUP_BYTES = 32 << 20
"""Of Arrow's columns in memory, that become a row group."""
OPEN_DAYS = 16


@dataclass(slots=True)
class _OpenFile:
    writer: Any
    sink: Any
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0
    span: Span | None = None

    @property
    def bytes(self) -> int:
        return int(self.sink.tell()) + self.waiting_bytes


class DayFiles:
    """Takes rows with a column for their day. `written` has what was stored, once it was finished."""

    def __init__(
        self, objects: ObjectStore, entropy: Entropy, prefix: str, schema: pa.Schema, has_day: bool, target_bytes: int
    ) -> None:
        """`schema` is that of the files; with `has_day` the day is a column of theirs, too."""
        self._objects = objects
        self._entropy = entropy
        self._prefix = prefix
        self._schema = schema
        self._has_day = has_day
        self._target_bytes = target_bytes
        self._open: dict[str, _OpenFile] = {}
        self.written: list[DataFile] = []

    async def add(self, rows: pa.Table) -> None:
        days = rows.column(DAY).combine_chunks()
        distinct = pc.unique(days)
        for day in distinct:
            of_day = rows if len(distinct) == 1 else rows.filter(pc.equal(days, day))
            await self._add(day.as_py().isoformat(), of_day)

    async def finish(self) -> list[DataFile]:
        for day in list(self._open):
            await self._store(day)
        return self.written

    async def _add(self, day: str, rows: pa.Table) -> None:
        if day not in self._open and len(self._open) == OPEN_DAYS:
            await self._store(max(self._open, key=lambda each: self._open[each].bytes))
        file = self._open.setdefault(day, self._new())
        span = span_of(rows)
        file.span = span if file.span is None else file.span | span
        file.waiting.append(rows if self._has_day else rows.drop_columns([DAY]))
        file.waiting_bytes += rows.nbytes
        file.rows += rows.num_rows
        if file.waiting_bytes >= GROUP_BYTES:
            self._write_group(file)
        if file.sink.tell() >= self._target_bytes:
            await self._store(day)

    def _new(self) -> _OpenFile:
        sink = pa.BufferOutputStream()
        return _OpenFile(pq.ParquetWriter(sink, self._schema, compression="zstd"), sink)

    def _write_group(self, file: _OpenFile) -> None:
        rows = pa.concat_tables(file.waiting).select(self._schema.names)
        table = pa.Table.from_arrays(rows.columns, schema=self._schema)
        file.writer.write_table(table, row_group_size=max(table.num_rows, 1))
        file.waiting, file.waiting_bytes = [], 0

    async def _store(self, day: str) -> None:
        file = self._open.pop(day)
        if file.waiting:
            self._write_group(file)
        file.writer.close()
        data = file.sink.getvalue()
        path = f"{DAY}={day}/{self._entropy.hex_id()}.parquet"
        await self._objects.put(f"{self._prefix}/{path}", [memoryview(data).cast("B")], ABSENT)
        self.written.append(DataFile(path, day, file.rows, data.size, file.span))


def span_of(rows: pa.Table) -> Span:
    """Of rows that are not none."""
    metadata = rows.column(METADATA).combine_chunks()

    def ends(name: str) -> tuple[int, int]:
        column = metadata.field(name)
        found = pc.min_max(column.cast(pa.int64()) if name == TIMESTAMP else column)
        return found["min"].as_py(), found["max"].as_py()

    return Span(ends(PARTITION), ends(OFFSET), ends(TIMESTAMP))
