"""A log to work on, and no Spark to do it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import catena
from catena.config import Settings, load
from catena.jobs import OpenWork
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import InlineWork, Work
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_objects


def inline(settings: Settings) -> OpenWork:
    """Tasks run in this process."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Work]:
        clock, entropy = SystemClock(), SystemEntropy()
        async with open_objects(settings, clock, entropy) as (objects, counted):
            yield InlineWork(TaskContext(objects, clock, entropy, counted))

    return opened


def no_spark() -> AbstractAsyncContextManager[Work]:
    pytest.fail("there is nothing to do for Spark")


async def make_topics(folder: Path) -> Settings:
    async with catena.open(folder) as log:
        await log.create_topic("a", 2)
        await log.create_topic("b", 3)
        await log.append("b", "x", partition=1)
        await log.append("b", "y", partition=1)
    return load(data=str(folder))
