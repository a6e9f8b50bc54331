"""A world of brokers on each of the stores that need no server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.broker.world import World


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as opened:
        yield World(request.param, tmp_path, opened)
