"""A log to work on, and no Spark to do it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

import catena
from catena.config import Settings, load
from catena.pipeline.work import Work


def no_spark() -> AbstractAsyncContextManager[Work]:
    pytest.fail("there is nothing to do for Spark")


async def make_topics(folder: Path) -> Settings:
    async with catena.open(folder) as log:
        await log.create_topic("a", 2)
        await log.create_topic("b", 3)
        await log.append("b", "x", partition=1)
        await log.append("b", "y", partition=1)
    return load(data=str(folder))
