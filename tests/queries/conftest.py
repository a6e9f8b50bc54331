"""Queries need what tables need, and DuckDB."""

from __future__ import annotations

import importlib.util
import os

from tests.tables import conftest as tables

if (
    importlib.util.find_spec("duckdb") is None or not all(map(tables._is_there, tables.NEEDED))
) and "tables" not in os.environ.get("CATENA_REQUIRE", "").split(","):
    collect_ignore_glob = ["test_*.py"]
