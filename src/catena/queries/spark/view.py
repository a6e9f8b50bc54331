"""A topic's table and its tail as one DataFrame, and as a view by the topic's name.

    fresh_view(spark, "orders", data="data")
    spark.sql("select count(*) from orders")

Files of the table and ranges of the log are planned here, once; tasks read them from the object store by themselves, so
Spark needs no jars for Delta, Iceberg or S3. What is acked later is in the next view that is made.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from catena.config import Settings
from catena.errors import DataLoss, ObjectMissing
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.queries.fresh import Fresh, look
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.source.splitting import Split
from catena.store_spec import StoreSpec, settings_of_log
from catena.stores import open_stores
from catena.tables.storage import Storage, TableOpener
from catena.tables.values import ValueSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

BATCH_ROWS = 10_000


class ReadFile(msgspec.Struct, frozen=True, tag="file"):
    key: str
    day: str


class ReadSplit(msgspec.Struct, frozen=True, tag="split"):
    split: Split


class Reading(msgspec.Struct, frozen=True):
    """What all tasks of a view have in common."""

    store: StoreSpec
    value: ValueSpec
    schema: bytes
    """Arrow's, as Arrow writes it."""
    skips: bool
    """Batches of the log that can't be decoded are left out; else they are an error."""


def fresh_view(
    spark: SparkSession,
    topic: str,
    *,
    data: str | None = None,
    config: str | None = None,
    name: str | None = None,
    skip_undecodable: bool = False,
) -> DataFrame:
    """Also as the temporary view `name`, which is the topic's own if nothing else is said.

    A batch that can't be decoded though its CRC is right is an error; with `skip_undecodable` its offsets are left out,
    and that is a warning in the worker's log.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    settings = settings_of_log(config, data)
    with ThreadPoolExecutor(1) as thread:  # a notebook has an event loop of its own in this one
        fresh = thread.submit(asyncio.run, _look(settings, topic)).result()
    for loss in fresh.losses:
        log.warning("neither in the table nor in the log: %s", loss)
    reading = reading_of(settings, fresh, skip_undecodable)
    plans = [
        *(ReadFile(f"{fresh.prefix}/{file.path}", file.day) for file in fresh.files),
        *(ReadSplit(split) for split in fresh.splits),
    ]
    rows = [(number, bytearray(msgspec.msgpack.encode(plan))) for number, plan in enumerate(plans)]
    frame = (
        spark.createDataFrame(rows, "id int, plan binary")
        .repartitionById(max(len(rows), 1), f.col("id"))
        .mapInArrow(functools.partial(_read_all, msgspec.msgpack.encode(reading)), from_arrow_schema(fresh.schema))
    )
    frame.createOrReplaceTempView(name or f"`{topic}`")
    return frame


def reading_of(settings: Settings, fresh: Fresh, skip_undecodable: bool = False) -> Reading:
    return Reading(StoreSpec.of(settings), fresh.value, fresh.schema.serialize().to_pybytes(), skip_undecodable)


async def _look(settings: Settings, name: str) -> Fresh:
    clock, entropy = SystemClock(), SystemEntropy()
    storage = Storage.of(settings)
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(open_stores(settings, clock, entropy))
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
        opened.push_async_callback(node.close)
        disk = Disk()
        opened.callback(disk.close)
        opener = TableOpener(storage, stores.objects, disk, clock, entropy)
        opened.push_async_callback(opener.close)
        return await look(node, opener, await node.topics.get(name))


def _read_all(common: bytes, plans: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task. One plan after the other, and of each only some rows are decoded at a time."""
    reading = msgspec.msgpack.decode(common, type=Reading)
    with asyncio.Runner() as runner, _Store(runner, reading.store) as objects:
        for batch in plans:
            for plan in batch.column("plan").to_pylist():
                rows = read(objects, reading, msgspec.msgpack.decode(plan, type=ReadFile | ReadSplit))
                try:
                    while True:
                        yield runner.run(_next(rows))
                except StopAsyncIteration:
                    pass


async def _next(rows: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch:
    return await anext(rows)


class _Store:
    def __init__(self, runner: asyncio.Runner, spec: StoreSpec) -> None:
        self._runner = runner
        self._opened = spec(SystemClock(), SystemEntropy())

    def __enter__(self) -> ObjectStore:
        objects, _ = self._runner.run(self._open())
        return objects

    async def _open(self) -> tuple[ObjectStore, object]:
        return await self._opened.__aenter__()

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())

    async def _close(self) -> None:
        await self._opened.__aexit__(None, None, None)


async def read(objects: ObjectStore, reading: Reading, plan: ReadFile | ReadSplit) -> AsyncIterator[pa.RecordBatch]:
    try:
        async for rows in _read(objects, reading, plan):
            yield rows
    except ObjectMissing as error:
        raise DataLoss(
            f"{error}; what has moved since the view was made is collected after a while: make the view again"
        ) from error


async def _read(objects: ObjectStore, reading: Reading, plan: ReadFile | ReadSplit) -> AsyncIterator[pa.RecordBatch]:
    import pyarrow as pa

    from catena.source.reading import leave_out, split_batches_of
    from catena.tables.columns import READ
    from catena.tables.values import decoder_of
    from catena.tables.values.rows import convert

    schema = pa.ipc.read_schema(pa.py_buffer(reading.schema))
    match plan:
        case ReadFile(key, day):
            for rows in _file_rows((await objects.get(key)).data, schema, day):
                yield rows
        case ReadSplit(split):
            decoder = decoder_of(reading.value)
            async for batch in split_batches_of(objects, split, READ, leave_out if reading.skips else None):
                rows = convert(batch, decoder, schema).rows.select(schema.names).cast(schema)
                for each in rows.to_batches(BATCH_ROWS):
                    yield each


def _file_rows(data: bytes, schema: pa.Schema, day: str) -> Iterator[pa.RecordBatch]:
    """With all columns that the view has, whenever the file was written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from catena.tables.columns import DAY
    from catena.tables.values.fitting import as_now

    for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(BATCH_ROWS):
        columns = [
            pa.repeat(pa.scalar(day).cast(pa.date32()), batch.num_rows)
            if field.name == DAY
            else as_now(batch.column(field.name), field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
