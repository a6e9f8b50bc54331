"""Property tests have no deadline per example, and without pyarrow there is nothing to test."""

from __future__ import annotations

import importlib.util
import os

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

if importlib.util.find_spec("pyarrow") is None and "spark" not in os.environ.get("CATENA_REQUIRE", "").split(","):
    collect_ignore_glob = ["test_[!i]*.py"]
