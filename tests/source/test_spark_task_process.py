"""What a Python worker of Spark does for its tasks, without Spark."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from catena.loglets.base import Extent
from catena.objects.base import Range
from catena.objects.memory import MemoryObjects
from catena.runtime import Clock, Entropy
from catena.source.spark.task_process import TaskProcess
from catena.types import Buffer


class Loud(bytes):
    """Bytes that tell who makes text of them."""

    told = 0

    def __repr__(self) -> str:
        Loud.told += 1
        return "Loud"


class LoudObjects(MemoryObjects):
    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        return [Loud(each) for each in await super().get_ranges(key, ranges)]


class StuckObjects(MemoryObjects):
    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        never: asyncio.Future[list[Buffer]] = asyncio.get_running_loop().create_future()
        return await never


@asynccontextmanager
async def store(clock: Clock, entropy: Entropy) -> AsyncIterator[tuple[MemoryObjects, None]]:
    objects = LoudObjects(clock)
    await objects.put("object", [b"0123456789"])
    yield objects, None


@pytest.fixture
def as_in_a_worker() -> Iterator[None]:
    """Spark's workers have Python's own handler of Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("as_in_a_worker")
def test_nobody_makes_text_of_what_was_downloaded() -> None:
    """asyncio's runner does, by way of a handler of Ctrl-C, and it took most of the time of a scan."""
    process = TaskProcess()
    try:
        extents = [Extent(0, 1, "object", 2, 3), Extent(1, 2, "object", 5, 2)]
        assert process.begin(store, extents).result() == [b"234", b"56"]  # type: ignore[arg-type]
    finally:
        process.close()
    assert Loud.told == 0


def test_a_store_is_opened_once_and_what_nobody_waits_for_ends_with_the_process() -> None:
    opened: list[MemoryObjects] = []

    @asynccontextmanager
    async def stuck(clock: Clock, entropy: Entropy) -> AsyncIterator[tuple[MemoryObjects, None]]:
        opened.append(StuckObjects(clock))
        yield opened[-1], None

    process = TaskProcess()
    downloads = [process.begin(stuck, [Extent(0, 1, "object", 2, 3)]) for _ in range(5)]  # type: ignore[arg-type]
    assert process.begin(store, [Extent(0, 1, "object", 2, 3)]).result() == [b"234"]  # type: ignore[arg-type]
    process.close()
    assert [each.cancelled() for each in downloads] == [True] * 5
    assert len(opened) == 1
