"""Ranges of a log as rows of its table, kept in a file that is mapped into memory: they may be more than fits there.

A value that the table could not take is left out here as well. An object that is gone since the look was collected by
vacuum, after what it held had moved on: whoever asks again finds it there.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from catena.objects.base import ObjectStore
from catena.queries.fresh import Fresh
from catena.source.reading import split_batches_of
from catena.tables.columns import READ
from catena.tables.values import decoder_of
from catena.tables.values.rows import convert


class TailRows(NamedTuple):
    rows: pa.Table
    left_out: int
    """Values that the table can't take."""


async def tail_rows(objects: ObjectStore, fresh: Fresh, file: Path) -> TailRows:
    decoder = decoder_of(fresh.value)
    left_out = 0
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, fresh.schema) as writer:
        for split in fresh.splits:
            async for batch in split_batches_of(objects, split, READ):
                converted = convert(batch, decoder, fresh.schema)
                left_out += converted.dead_letters.num_rows
                writer.write_table(converted.rows.select(fresh.schema.names).cast(fresh.schema))
    return TailRows(pa.ipc.open_file(pa.memory_map(str(file))).read_all(), left_out)
