"""Fixtures that every test may use: the real servers, started once a run, skipped with a reason where they can't be had."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def cannot_have(server: str, reason: str) -> NoReturn:
    """Skip, or fail where `CATENA_REQUIRE` (a comma-separated list) says that this server must be there."""
    if server in os.environ.get("CATENA_REQUIRE", "").split(","):
        pytest.fail(f"CATENA_REQUIRE names {server}, but: {reason}")
    pytest.skip(f"no {server} on this machine: {reason}")
