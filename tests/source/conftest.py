"""Without pyarrow only what is pure and what plans is tested."""

from __future__ import annotations

import importlib.util
import os

if importlib.util.find_spec("pyarrow") is None and "spark" not in os.environ.get("CATENA_REQUIRE", "").split(","):
    collect_ignore_glob = [
        "test_node_planner.py",
        "test_reading.py",
        "test_spark*.py",
        "test_source.py",
        "test_writing.py",
    ]
