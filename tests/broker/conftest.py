"""A world of brokers on each of the stores that need no server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.broker.group_world import GroupWorld
from tests.broker.world import World


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as opened:
        yield World(request.param, tmp_path, opened)


@pytest.fixture(params=[True, False], ids=["transact", "without transact"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[GroupWorld]:
    """Coordinators of groups, in both ways to write; there is a topic `t`."""
    async with AsyncExitStack() as opened:
        cluster = GroupWorld(request.param, opened)
        await cluster.topic("t", partitions=200)
        yield cluster
