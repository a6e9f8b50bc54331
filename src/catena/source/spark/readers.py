"""Readers as Spark calls them, for batches and for streams. They decide nothing: `planner` and `reading` do.

There is no `pushFilters`: Spark keeps a reader that has taken filters, and counts wrongly with it afterwards. A
narrower schema reads less, and so do options. A DataFrame is planned once, when it is first used: what is acked later
is in another one.

What of Spark's limits and triggers a reader can do depends on Spark's version: see `admission`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from catena.errors import ConfigError
from catena.source import offsets
from catena.source.options import SourceOptions
from catena.source.spark.planning_process import PlanningProcess
from catena.source.spark.task_process import read_here

if TYPE_CHECKING:
    import pyarrow as pa


class _Reading:
    """What goes to the tasks of a reader: its columns, and not its options, which may have a token among them."""

    _columns: Sequence[str]
    _is_strict: bool
    """A batch that can't be decoded is an error."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_columns": self._columns, "_is_strict": self._is_strict}

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:
            return iter(())  # Spark's own, where a plan has none: the first in 4.1, the second in later ones
        return read_here(partition.value, self._columns, self._is_strict)


class BatchReader(_Reading, DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._is_strict = options.fail_on_undecodable_batch

    def partitions(self) -> list[InputPartition]:
        process = PlanningProcess(self._options)
        try:
            return [InputPartition(task) for task in process.plan(lambda planner: planner.plan_batch())]
        finally:
            process.close()


class StreamReader(_Reading, DataSourceStreamReader):  # type: ignore[misc]
    """For a Spark that has no limits for sources of Python: a batch goes as far as the logs do."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._columns = columns
        self._is_strict = options.fail_on_undecodable_batch
        self.process = PlanningProcess(options)

    def initialOffset(self) -> dict[str, Any]:
        return offsets.encode(self.process.ask(lambda planner: planner.initial_offsets()))

    def latestOffset(self) -> dict[str, Any]:
        return offsets.encode(self.process.ask(lambda planner: planner.tails()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = offsets.decode(start), offsets.decode(end)
        tasks = self.process.plan(lambda planner: planner.plan_stream(first, last))
        return [InputPartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark calls it when the next batch is planned: it is not told of the last one of Trigger.AvailableNow."""
        self.process.commit(offsets.decode(end))

    def stop(self) -> None:
        self.process.close()


def open_stream_reader(options: SourceOptions, columns: Sequence[str]) -> StreamReader:
    """The best that this Spark can use."""
    try:
        from catena.source.spark.admission import AdmittingStreamReader
    except ImportError:
        if options.max_offsets_per_trigger is not None:
            raise ConfigError("option maxOffsetsPerTrigger needs Spark 4.2 or newer: leave it out") from None
        return StreamReader(options, columns)
    return AdmittingStreamReader(options, columns)
