"""What tasks write: files of one day each, of bounded size; and the same rows in fewer files."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catena.errors import ConfigError
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks import TaskContext
from catena.runtime import SystemClock, SystemEntropy
from catena.tables.columns import DAY, METADATA, METADATA_TYPE, RAW
from catena.tables.committer import DataFile
from catena.tables.tasks import REWRITE, parquet, run_task
from catena.tables.tasks.rewrite import RewritePlan
from catena.tables.tasks.rows import FilesSpec
from catena.types import ANY, Buffers, ETag, Expect

IN_FILES = RAW.remove(RAW.get_field_index(DAY))


class OnlyBytes(MemoryObjects):
    """As particular as the client of S3."""

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        assert all(memoryview(buffer).format == "B" for buffer in data)
        return await super().put(key, data, expect)


@pytest.fixture
def context() -> TaskContext:
    objects = CountedObjects(OnlyBytes(SystemClock()), SystemClock())
    return TaskContext(objects, SystemClock(), SystemEntropy(), objects)


def rows(days: list[int], first: int = 0, size: int = 10) -> pa.Table:
    metadata = [
        {"partition": 0, "offset": first + n, "timestamp": n, "timestamp_type": 0, "headers": None}
        for n in range(len(days))
    ]
    values = [bytes([n % 256]) * size for n in range(len(days))]
    return pa.table(
        [
            pa.array(metadata, METADATA_TYPE),
            pa.array([None] * len(days), pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(days, pa.int32()).cast(pa.date32()),
        ],
        schema=RAW,
    )


def offsets(table: pa.Table) -> list[int]:
    return [each["offset"] for each in table[METADATA].to_pylist()]


async def read(context: TaskContext, file: DataFile) -> pa.Table:
    return pq.read_table(pa.BufferReader((await context.objects.get(f"t/{file.path}")).data))


async def test_a_file_for_each_day(context: TaskContext) -> None:
    files = FilesSpec.of("t", IN_FILES, False, 1 << 20).open(context)
    await files.add(rows([0, 1, 0]))
    await files.add(rows([1], first=3))
    written = {file.day: file for file in await files.finish()}
    assert {day: file.rows for day, file in written.items()} == {"1970-01-01": 2, "1970-01-02": 2}
    second = await read(context, written["1970-01-02"])
    assert offsets(second) == [1, 3]
    assert second.column_names == IN_FILES.names
    span = written["1970-01-02"].span
    assert span is not None
    assert (span.offset, span.partition, span.timestamp_us) == ((1, 3), (0, 0), (0, 1))
    assert (await context.objects.head(f"t/{written['1970-01-01'].path}")).size == written["1970-01-01"].bytes


async def test_files_of_bounded_size_and_number(context: TaskContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1)
    monkeypatch.setattr(parquet, "OPEN_DAYS", 2)
    files = FilesSpec.of("t", RAW, True, 1).open(context)
    for number in range(3):
        await files.add(rows([0], first=number))
    assert len(files.written) == 3
    assert (await read(context, files.written[0])).column_names == RAW.names
    patient = FilesSpec.of("t", RAW, True, 1 << 20).open(context)
    for day in (0, 1, 2, 0):
        await patient.add(rows([day]))
    assert len(await patient.finish()) == 4, "a third day made the first one end"


async def test_fewer_files(context: TaskContext) -> None:
    made = []
    for first in (5, 0):
        files = FilesSpec.of("t", IN_FILES, False, 1 << 20).open(context)
        await files.add(rows([3] * 5, first=first))
        made += await files.finish()
    wider = pa.schema([*IN_FILES, pa.field("new", pa.string())])
    plan = RewritePlan(tuple(made), FilesSpec.of("t", wider, False, 1 << 20))
    result = await run_task(REWRITE, context, msgspec.msgpack.encode(plan))
    (file,) = msgspec.msgpack.decode(result, type=list[DataFile])
    assert (file.rows, file.day) == (10, "1970-01-04")
    found = await read(context, file)
    assert offsets(found) == list(range(10))
    assert found["new"].to_pylist() == [None] * 10


async def test_other_tasks_are_the_pipelines(context: TaskContext) -> None:
    assert b"echoed" not in await run_task("probe", context, b"x")
    with pytest.raises(ConfigError, match="there is no task"):
        await run_task("nothing", context, b"")
