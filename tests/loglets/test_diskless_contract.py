"""The diskless loglet keeps the contract, on every meta store and in both ways to commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.objects.base import ObjectStore
from catena.testing.contracts.loglet import LogletContract, OpenLink
from catena.testing.contracts.loglet_stored import StoredContract
from tests.loglets.stores import BACKENDS, Stores


@pytest.mark.parametrize("backend", BACKENDS)
class TestDisklessLoglet(LogletContract, StoredContract):
    @pytest.fixture
    async def stores(self, backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
        async with Stores(backend, tmp_path, request) as stores:
            yield stores

    @pytest.fixture
    def objects(self, stores: Stores) -> ObjectStore:
        return stores.objects

    @pytest.fixture
    async def open_here(self, stores: Stores) -> OpenLink:
        return (await stores.node()).open

    @pytest.fixture
    async def open_there(self, stores: Stores) -> OpenLink:
        return (await stores.node()).open
