"""A data source of Spark's that gives the same Arrow batch again and again, and so costs nothing: what any source that
is written in Python could reach, because all that is left is Spark's own way from Arrow in Python to rows in the JVM.

The batch has the columns, the sizes and as many rows as those that the format `catena` makes of a topic.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.decoding import PARTITION, bodies_of
from catena.columns.decode import decode
from catena.columns.schema import COLUMNS, HEADERS
from catena.source.spark.datasource import TYPES

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "arrow-floor"
PLAIN = [name for name in COLUMNS if name != HEADERS]


class ArrowFloor(DataSource):  # type: ignore[misc]
    """Options: `size` of the records, `rows` of each partition, `partitions`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ", ".join(f"{name} {TYPES[name]}" for name in PLAIN)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return _Reader(*(int(self.options[name]) for name in ("size", "rows", "partitions")))


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, size: int, rows: int, partitions: int) -> None:
        self._size = size
        self._rows = rows
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        batch, left = batch_of(self._size), self._rows
        while left:
            part = batch.slice(0, left)
            yield part
            left -= part.num_rows


@functools.cache
def batch_of(size: int) -> pa.RecordBatch:
    """The first one of a topic with such records; made once in a process, as few bytes are enough for it."""
    return next(decode(bodies_of(size, total=16 << 20), PARTITION, columns=PLAIN))
