"""A world of nodes on each of the stores that need no server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cluster.world import World


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as opened:
        yield World(request.param, tmp_path, opened)


@pytest.fixture
async def sqlite_world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as opened:
        yield World("sqlite", tmp_path, opened)
