"""Writers as Spark calls them, for batches and for streams. They decide nothing: `writing` and `adopting` do.

Spark makes a writer when it plans, sends it to the tasks, and then to the process that commits; the second and third
are copies of the first. `abort` deletes nothing: Spark calls it when a commit has failed, too, and then the write may
have begun; blobs that nothing names are vacuum's.

A stream's query and batch are known in its tasks only, as properties of the job; commits are told the batch's number.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from catena.columns import schema as columns
from catena.errors import ConfigError, StoreRefused
from catena.runtime import SystemClock, SystemEntropy
from catena.source.adopting import Written
from catena.source.spark.write_process import commit_write, plan_write, put_here
from catena.source.write_options import WriteOptions
from catena.source.writing import TaskWriter
from catena.types import TopicId
from catena.virtual_log.intents import StoredBlob

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

TYPES = {
    columns.KEY: ("string", "binary"),
    columns.VALUE: ("string", "binary"),
    columns.HEADERS: ("array<struct<key:string,value:binary>>",),
    columns.TOPIC: ("string",),
    columns.PARTITION: ("int",),
    columns.TIMESTAMP: ("timestamp",),
}


@dataclass(frozen=True)
class Stored(WriterCommitMessage):  # type: ignore[misc]
    """What a task has stored."""

    app: str
    task: int
    topics: dict[TopicId, str]
    blobs: tuple[StoredBlob, ...]


class _Storing:
    """What the writers of batches and of streams do with rows."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_columns(options, schema)
        if overwrite:
            raise ConfigError("a log is only ever appended to: use mode append")
        self._options = options
        self._plan, self._store = plan_write(options)

    def store_rows(self, rows: Iterable[pa.RecordBatch], app: str, version: int) -> Stored:
        task = TaskContext.get().partitionId()
        put = functools.partial(put_here, self._store)
        writer = TaskWriter(self._plan, app, version, task, put, SystemClock())
        for some in rows:
            writer.add(some)
        blobs = writer.finish()
        return Stored(app, task, writer.topics, blobs)


class BatchWriter(_Storing, DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._app = options.writer or SystemEntropy().hex_id()
        self._version = options.version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.store_rows(iterator, self._app, self._version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_write(self._options, self._app, self._version, _written(messages), forget=self._options.app is None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: see above."""


class StreamWriter(_Storing, DataSourceStreamArrowWriter):  # type: ignore[misc]
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        app, batch = self._options.writer or context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if not app or batch is None:
            raise StoreRefused(f"this Spark does not tell the query and the batch of a task ({QUERY_ID}, {BATCH_ID})")
        return self.store_rows(iterator, app, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        apps = {message.app for message in messages if isinstance(message, Stored)}
        if apps:
            (app,) = apps
            commit_write(self._options, app, batchId, _written(messages), forget=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: see above."""


def check_columns(options: WriteOptions, schema: StructType) -> None:
    """Others are not looked at, as in Spark's Kafka sink: what was read from a topic can be written as it is."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, type_ in found.items():
        if name in TYPES and type_ not in TYPES[name]:
            raise ConfigError(f"column {name} is {' or '.join(TYPES[name])}, not {type_}")
    if columns.VALUE not in found:
        raise ConfigError(f"there is no column value, which a record needs; there are {', '.join(found)}")
    if options.topic is None and columns.TOPIC not in found:
        raise ConfigError("nothing says which topic to write to: give the option topic, or a column of that name")


def _written(messages: list[WriterCommitMessage | None]) -> Written:
    stored = sorted((each for each in messages if isinstance(each, Stored)), key=lambda each: each.task)
    topics = {topic_id: name for each in stored for topic_id, name in each.topics.items()}
    return Written(topics, [blob for each in stored for blob in each.blobs])
