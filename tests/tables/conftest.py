"""Where a library of tables is missing, none of these is run."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

NEEDED = ("pyarrow", "deltalake", "pyiceberg", "fastavro", "google.protobuf")


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


if not all(map(_is_there, NEEDED)) and "tables" not in os.environ.get("CATENA_REQUIRE", "").split(","):
    collect_ignore_glob = ["test_*.py"]
else:
    from tests.tables.world import World, opened_world

    @pytest.fixture
    async def world(tmp_path: Path) -> AsyncIterator[World]:
        async with opened_world(tmp_path) as world:
            yield world
