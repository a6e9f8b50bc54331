"""The task that makes one file of many small ones of a day. Rows are in the order of partition and offset then."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catena.pipeline.tasks import TaskContext
from catena.tables.columns import DAY, METADATA, OFFSET, PARTITION
from catena.tables.committer import DataFile
from catena.tables.tasks.rows import FilesSpec
from catena.tables.values.fitting import as_now


class RewritePlan(msgspec.Struct, frozen=True):
    files: tuple[DataFile, ...]
    table: FilesSpec


async def run(context: TaskContext, plan: bytes) -> bytes:
    return msgspec.msgpack.encode(await rewrite(context, msgspec.msgpack.decode(plan, type=RewritePlan)))


async def rewrite(context: TaskContext, plan: RewritePlan) -> list[DataFile]:
    """One file, or more if they do not fit into one."""
    schema = plan.table.arrow_schema
    parts = []
    for file in plan.files:
        stored = await context.objects.get(f"{plan.table.prefix}/{file.path}")
        parts.append(_as_now(pq.read_table(pa.BufferReader(stored.data)), schema, file.day))
    rows = pa.concat_tables(parts)
    metadata = rows.column(METADATA).combine_chunks()
    keys = pa.table({PARTITION: metadata.field(PARTITION), OFFSET: metadata.field(OFFSET)})
    order = pc.sort_indices(keys, [(PARTITION, "ascending"), (OFFSET, "ascending")])
    files = plan.table.open(context)
    await files.add(rows.take(order))
    return await files.finish()


def _as_now(rows: pa.Table, schema: pa.Schema, day: str) -> pa.Table:
    """With the columns that the table has now, in their order, and the day."""
    days = pa.array([day] * rows.num_rows, pa.string()).cast(pa.date32())
    columns = {}
    for field in schema:
        if field.name == DAY:
            continue
        if field.name in rows.column_names:
            chunks = rows.column(field.name).chunks
            columns[field.name] = pa.chunked_array([as_now(chunk, field.type) for chunk in chunks], field.type)
        else:
            columns[field.name] = pa.nulls(rows.num_rows, field.type)
    return pa.table({**columns, DAY: days})
