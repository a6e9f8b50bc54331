"""Tables of rows: the same in this process, on Spark and through Spark Connect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catena.errors import NeedsOperator, RetryLater
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.pipeline.spark.session import open_spark
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import ROWS_AT_ONCE, InlineWork, Row, Table, Work
from catena.runtime import SystemClock, SystemEntropy
from catena.store_spec import StoreSpec
from tests.pipeline.conftest import LOCAL, Sparks
from tests.pipeline.rows import list_rows

PLANS = [b"0 1", b"1 1", b"1 2600", b"2600 5000"]


@pytest.fixture(params=["inline", "spark", "connect"])
async def work(request: pytest.FixtureRequest, store: StoreSpec, objects: ObjectStore) -> AsyncIterator[Work]:
    if request.param == "inline":
        counted = CountedObjects(objects, SystemClock())
        yield InlineWork(TaskContext(counted, SystemClock(), SystemEntropy(), counted), list_rows)
        return
    sparks: Sparks = request.getfixturevalue("sparks")
    if request.param == "spark":
        spark = SparkWork(sparks.get(LOCAL), store, SystemEntropy(), list_rows)
        yield spark
        spark.close()
        return
    with open_spark(remote=sparks.remote) as session:
        spark = SparkWork(session, store, SystemEntropy(), list_rows)
        yield spark
        spark.close()


async def rows_of(table: Table) -> list[Row]:
    pieces = [piece async for piece in table.rows()]
    assert all(0 < len(piece) <= ROWS_AT_ONCE for piece in pieces)
    return sorted((row for piece in pieces for row in piece), key=lambda row: row.size)


def numbers(start: int, end: int) -> list[Row]:
    return [Row(f"row/{number}", number) for number in range(start, end)]


async def test_all_rows_are_there_until_they_are_removed(work: Work, objects: ObjectStore) -> None:
    async with work.table("numbers", PLANS) as table:
        assert table.counts == {"rows": 5000, "tasks": 4}
        assert len([info async for info in objects.list("listed/")]) == 4, "they are listed by now"
        await table.remove([f"row/{number}" for number in range(100, 4000)])
        await table.remove({"row/7", "row/100", "no row"})
        await table.remove([f"row/{number}" for number in range(4000, 5000)])
        assert await rows_of(table) == numbers(0, 7) + numbers(8, 100)
    assert len([info async for info in objects.list("listed/")]) == 4, "once"
    assert sum(usage.tasks for usage in work.usage.values()) == 4
    assert sum(usage.requests["put"] for usage in work.usage.values()) == 4


async def test_nothing_is_removed(work: Work) -> None:
    async with work.table("numbers", PLANS) as table:
        assert await rows_of(table) == numbers(0, 5000)


async def test_all_is_removed(work: Work) -> None:
    async with work.table("numbers", PLANS) as table:
        await asyncio.gather(
            *(table.remove([f"row/{each}" for each in range(at, at + 500)]) for at in range(0, 5000, 500))
        )
        assert await rows_of(table) == []


async def test_a_task_that_fails_fails_the_table(work: Work) -> None:
    with pytest.raises(NeedsOperator, match="a task has failed: ValueError: this is no good"):
        async with work.table("fail", [b"this"]):
            raise AssertionError("there is nothing to see")
    with pytest.raises(RetryLater, match="a task has failed: StoreUnavailable: the store is down"):
        async with work.table("fail later", [b"", b""]):
            raise AssertionError("there is nothing to see")
