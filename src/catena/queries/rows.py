"""What is not in the table yet, as rows of it that are decoded while a query asks for them. DuckDB takes it for a
dataset of Arrow's, and says which columns it wants and on which condition.

- **Pieces** that the condition rules out by their partition and offsets are not downloaded; Arrow decides that, as it
  does for the files of a table by their day.
- **Columns** that are not asked for are not decoded where values are raw; who counts rows is given `_catena`. Values of
  other formats are all read: only that tells whether a record is in the table, since one that does not fit is left out
  here as well.
- **Memory**: a piece as it is stored (`source.reading.GROUP_BYTES`), and some thousand rows of it. A query that needs
  the rows twice has them decoded twice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from catena.columns import schema as topic
from catena.columns.gather import OpaqueBatch
from catena.queries.fresh import Fresh
from catena.queries.pieces import PieceReader, pieces_of
from catena.source.splitting import Split
from catena.tables.columns import DAY, KEY, METADATA, OFFSET, PARTITION, READ, VALUE, days_of, metadata_of
from catena.tables.naming import source_of
from catena.tables.values import decoder_of
from catena.tables.values.rows import convert


class Scan(NamedTuple):
    """What DuckDB has of a scanner."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches)


class TailRows(ds.Dataset):  # type: ignore[misc]
    """Scans are read by other threads than that of the event loop."""

    def __init__(self, fresh: Fresh, reader: PieceReader, skips: bool = False) -> None:  # Arrow's own has none
        """`skips`: batches that can't be decoded are left out; else they are an error."""
        self._schema = fresh.schema
        self._reader = reader
        self._pieces = pieces_of(fresh.splits)
        self._decoder = decoder_of(fresh.value)
        values = [column for column in fresh.schema if source_of(column) == VALUE]
        is_raw = fresh.value.format == "raw" and all(column.type.equals(pa.binary()) for column in values)
        self._raw_value = values[0].name if is_raw else None
        """The column of values, where all of them fit."""
        self._skips = skips
        self._left_out: dict[int, int] = {}
        self._opaque: dict[int, int] = {}
        self.trouble: Exception | None = None
        """What ended a scan: of errors DuckDB tells the words only."""

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def left_out(self) -> int:
        """Values that the table can't take, of those that were read."""
        return sum(self._left_out.values())

    @property
    def opaque(self) -> int:
        """Batches that can't be decoded, of those that were read."""
        return sum(self._opaque.values())

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        **_: Any,
    ) -> Scan:
        names = self._schema.names if columns is None else list(columns)
        return Scan(pa.schema([self._schema.field(name) for name in names]), self._scan(names, filter))

    def _scan(self, names: Sequence[str], condition: Any) -> Iterator[pa.RecordBatch]:
        try:
            needed = {*names, *_columns_of(condition, self._schema)}
            for number in self.chosen(condition):
                yield from self._rows_of(number, names, needed, condition)
        except Exception as error:
            self.trouble = error
            raise

    def _rows_of(self, number: int, names: Sequence[str], needed: set[str], condition: Any) -> Iterator[pa.RecordBatch]:
        left_out = opaque = 0

        def skip(_: OpaqueBatch) -> None:
            nonlocal opaque
            opaque += 1

        aside = skip if self._skips else None
        for batch in self._reader.read(self._pieces[number], self._read_for(needed), aside):
            if self._raw_value is None:
                converted = convert(batch, self._decoder, self._schema)
                left_out += converted.dead_letters.num_rows
                rows = converted.rows.select(self._schema.names).cast(self._schema)
            else:
                rows = self._raw_rows(batch, needed)
            if condition is not None:
                rows = rows.filter(condition)
            if not names:
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * rows.num_rows, pa.struct([])))
            else:
                yield from rows.select(names).to_batches()
        self._left_out[number], self._opaque[number] = left_out, opaque

    def _read_for(self, needed: set[str]) -> Sequence[str]:
        """Columns of the topic that these columns are made of."""
        if self._raw_value is None:
            return READ
        made_of = {METADATA: READ[:5], KEY: (topic.KEY,), self._raw_value: (topic.VALUE,), DAY: (topic.TIMESTAMP,)}
        read = {name for column in needed for name in made_of.get(column, ())}
        return [name for name in READ if name in read] or [topic.OFFSET]

    def _raw_rows(self, batch: pa.RecordBatch, needed: set[str]) -> pa.Table:
        """Null in columns that are not needed."""
        columns = []
        for field in self._schema:
            if field.name not in needed:
                columns.append(pa.nulls(batch.num_rows, field.type))
            elif field.name == METADATA:
                columns.append(metadata_of(batch))
            elif field.name == KEY:
                columns.append(batch.column(topic.KEY))
            elif field.name == DAY:
                columns.append(days_of(batch))
            elif field.name == self._raw_value:
                columns.append(batch.column(topic.VALUE))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def chosen(self, condition: Any) -> list[int]:
        """The pieces that may have rows for it."""
        if condition is None:
            return list(range(len(self._pieces)))
        return sorted(int(fragment.path) for fragment in self._places.get_fragments(filter=condition))

    @functools.cached_property
    def _places(self) -> ds.FileSystemDataset:
        """What is known of each piece, by its number: files that are not there, and that nobody opens."""
        form, system = ds.ParquetFileFormat(), fs.LocalFileSystem()
        fragments = [
            form.make_fragment(str(number), system, _place(piece)) for number, piece in enumerate(self._pieces)
        ]
        return ds.FileSystemDataset(fragments, self._schema, form, system)


def _place(piece: Split) -> Any:
    offset = ds.field(METADATA, OFFSET)
    return (
        (ds.field(METADATA, PARTITION) == pa.scalar(piece.partition, pa.int32()))
        & (offset >= pa.scalar(piece.start, pa.int64()))
        & (offset <= pa.scalar(piece.end - 1, pa.int64()))
    )


def _columns_of(condition: Any, schema: pa.Schema) -> Iterator[str]:
    """Those that a condition is about: it makes no sense without them."""
    if condition is None:
        return
    for place, name in enumerate(schema.names):
        try:
            schema.remove(place).empty_table().filter(condition)
        except pa.ArrowException:
            yield name
