"""Rows that tasks have listed, in Spark's memory and on its disks; what is removed goes by an anti-join.

    createDataFrame -> repartitionById -> mapInArrow -> persist        the rows, listed by workers, kept by executors
    createDataFrame -> localCheckpoint                                 keys to be removed, a chunk at a time
    left_anti join -> mapInArrow -> toLocalIterator                    what is left, packed, a piece at a time

Rows that get lost with an executor are listed again, which the contract of tables allows for. Keys to be removed that
get lost with one can't be read again: then Spark gives up, and so does whoever wants to know what is left.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from catena.errors import RetryLater
from catena.pipeline.spark.worker import Answer, Job, decode_answer
from catena.pipeline.tasks import listing
from catena.pipeline.work import ROWS_AT_ONCE, Row, add_counts, require_done

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

ROWS_SCHEMA = "head binary, key string, size bigint"
PIECES_SCHEMA = "piece binary"

_pieces = msgspec.msgpack.Decoder(list[Row])
_counts = msgspec.msgpack.Decoder(dict[str, int])


class InThread(Protocol):
    """Does what blocks in a thread of its own."""

    def __call__(self, do: Callable[[], T]) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Lister:
    """Does a listing task in a worker. Its rows stay there; its head, an answer without them, goes to the driver."""

    job: Job

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for answers in self.job(batches):
            for data in answers["answer"].to_pylist():
                answer = decode_answer(data)
                listed = listing.Listed([], [], {})
                if answer.result is not None:
                    listed = listing.decode(answer.result)
                    answer = msgspec.structs.replace(answer, result=msgspec.msgpack.encode(listed.totals))
                yield _batch([msgspec.msgpack.encode(answer)], [None], [None])
                if listed.keys:
                    yield _batch([None] * len(listed.keys), listed.keys, listed.sizes)


def pack(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """So that the driver gets few large rows instead of many small ones."""
    import pyarrow

    for batch in batches:
        rows = list(zip(batch["key"].to_pylist(), batch["size"].to_pylist(), strict=True))
        pieces = [msgspec.msgpack.encode(rows[at : at + ROWS_AT_ONCE]) for at in range(0, len(rows), ROWS_AT_ONCE)]
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(pieces, pyarrow.binary())], ["piece"])


class SparkTable:
    def __init__(self, session: SparkSession, in_thread: InThread) -> None:
        self._session = session
        self._in_thread = in_thread
        self._rows: DataFrame | None = None
        self._removed: list[DataFrame] = []
        self.counts: dict[str, int] = {}

    async def fill(self, job: Job, plans: Sequence[bytes], tell: Callable[[Answer], None]) -> None:
        """`tell` is told of each answer, without its rows. Raises as `Work.table` does."""
        answers = await self._in_thread(lambda: self._list(job, plans))
        for answer in answers:
            tell(answer)
        self.counts = add_counts(_counts.decode(require_done(answer.outcome())) for answer in answers)

    async def remove(self, keys: Collection[str]) -> None:
        self._removed.append(await self._in_thread(lambda: self._keep(keys)))

    async def rows(self) -> AsyncGenerator[Sequence[Row], None]:
        pieces = await self._in_thread(self._left)
        while (piece := await self._in_thread(lambda: next(pieces, None))) is not None:
            yield _pieces.decode(piece["piece"])

    async def close(self) -> None:
        self._removed.clear()
        if self._rows is not None:
            with suppress(RetryLater):  # then it is gone with the session
                await self._in_thread(self._rows.unpersist)

    def _list(self, job: Job, plans: Sequence[bytes]) -> list[Answer]:
        import pyarrow

        numbers = pyarrow.array(range(len(plans)), pyarrow.int32())
        table = pyarrow.table(
            {"place": numbers, "number": numbers, "plan": pyarrow.array(plans, pyarrow.binary())},
        )
        tasks = self._session.createDataFrame(table).repartitionById(len(plans), "place")
        self._rows = tasks.mapInArrow(Lister(job), ROWS_SCHEMA).persist()
        heads = self._rows.where("head is not null").select("head").collect()
        return [decode_answer(bytes(row["head"])) for row in heads]

    def _keep(self, keys: Collection[str]) -> DataFrame:
        import pyarrow

        chunk = pyarrow.table({"key": pyarrow.array(keys, pyarrow.string())})
        return self._session.createDataFrame(chunk).localCheckpoint()

    def _left(self) -> Iterator[Any]:
        assert self._rows is not None
        left = self._rows.where("key is not null").select("key", "size")
        if self._removed:
            removed = reduce(lambda some, more: some.union(more), self._removed)
            left = left.join(removed, "key", "left_anti")
        pieces: Iterator[Any] = left.mapInArrow(pack, PIECES_SCHEMA).toLocalIterator()
        return pieces


def _batch(heads: Sequence[bytes | None], keys: Sequence[str | None], sizes: Sequence[int | None]) -> RecordBatch:
    import pyarrow

    columns = [
        pyarrow.array(heads, pyarrow.binary()),
        pyarrow.array(keys, pyarrow.string()),
        pyarrow.array(sizes, pyarrow.int64()),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, ["head", "key", "size"])
