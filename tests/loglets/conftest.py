"""Stores in memory, in both ways to commit, for tests that are about the protocol and not about a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.testing.contracts.loglet import Links
from tests.loglets.stores import WAYS, Stores


@pytest.fixture(params=WAYS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    async with Stores(request.param, tmp_path, request) as stores:
        yield stores


@pytest.fixture
def links() -> Links:
    return Links()
