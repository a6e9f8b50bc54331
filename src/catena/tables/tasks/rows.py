"""The task that brings records of a topic into files of its table.

A record whose value can't be what the table says goes to the files of dead letters, with the reason. So does a batch
that can't be decoded though its CRC is right, as one row. Nothing that a producer sends can fail the task; a batch that
is damaged, or an object that is gone, does.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from catena.columns.gather import OpaqueBatch
from catena.pipeline.tasks import TaskContext
from catena.source.reading import split_batches_of
from catena.source.splitting import Split
from catena.tables.columns import READ
from catena.tables.committer import DataFile
from catena.tables.tasks.parquet import DayFiles
from catena.tables.values import ValueSpec, decoder_of
from catena.tables.values.rows import convert, opaque_letters


class FilesSpec(msgspec.Struct, frozen=True):
    """Where files of a table go, and what they look like inside."""

    prefix: str
    schema: bytes
    """Arrow's, as Arrow writes it."""
    has_day: bool
    target_bytes: int

    @classmethod
    def of(cls, prefix: str, schema: pa.Schema, has_day: bool, target_bytes: int) -> FilesSpec:
        return cls(prefix, schema.serialize().to_pybytes(), has_day, target_bytes)

    def open(self, context: TaskContext) -> DayFiles:
        return DayFiles(
            context.objects, context.entropy, self.prefix, self.arrow_schema, self.has_day, self.target_bytes
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


class RowsPlan(msgspec.Struct, frozen=True):
    splits: tuple[Split, ...]
    value: ValueSpec
    table: FilesSpec
    dead_letters: FilesSpec | None
    """None: there are none, whatever the values are: they are raw, and so is their column. Unless a batch can't even
    be decoded; then the task is told to be done again, with a place for it."""


class RowsWritten(msgspec.Struct, frozen=True):
    files: list[DataFile]
    dead_letters: list[DataFile]
    opaque_batches: int = 0
    """Of the dead letters, those that are a batch each."""
    lacks_letters: bool = False
    """There are dead letters, and no place for them: nothing of this counts."""


NO_PLACE = RowsWritten([], [], lacks_letters=True)


async def run(context: TaskContext, plan: bytes) -> bytes:
    return msgspec.msgpack.encode(await write_rows(context, msgspec.msgpack.decode(plan, type=RowsPlan)))


async def write_rows(context: TaskContext, plan: RowsPlan) -> RowsWritten:
    decoder = decoder_of(plan.value)
    schema = plan.table.arrow_schema
    files = plan.table.open(context)
    dead = None if plan.dead_letters is None else plan.dead_letters.open(context)
    opaque_batches = 0
    for split in plan.splits:
        opaque: list[OpaqueBatch] = []
        async for batch in split_batches_of(context.objects, split, READ, opaque.append):
            converted = convert(batch, decoder, schema)
            if converted.rows.num_rows:
                await files.add(converted.rows)
            if converted.dead_letters.num_rows:
                assert dead is not None, "raw values fit a raw column"
                await dead.add(converted.dead_letters)
        if opaque:
            if dead is None:
                return NO_PLACE
            await dead.add(opaque_letters(opaque, split.partition))
            opaque_batches += len(opaque)
    return RowsWritten(await files.finish(), [] if dead is None else await dead.finish(), opaque_batches)
