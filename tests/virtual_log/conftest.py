"""Nodes as `node.py` makes them, on stores that they share, each with faults of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.loglets.stores import WAYS, Stores
from tests.virtual_log.cluster import Cluster


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Stores(request.param, tmp_path, request) as stores:
        yield Cluster(stores)
