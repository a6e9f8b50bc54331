"""Without pyarrow there is nothing to test."""

from __future__ import annotations

import importlib.util
import os

if importlib.util.find_spec("pyarrow") is None and "spark" not in os.environ.get("CATENA_REQUIRE", "").split(","):
    collect_ignore_glob = ["test_[!i]*.py"]
