"""Wait for something to become true, with a deadline and no fixed pauses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.02
PATIENCE_S = 60.0
"""Far more than anything here takes, so that a busy machine fails no test."""


def until(look: Callable[[], T | None], what: str, within_s: float = PATIENCE_S) -> T:
    """What `look` says once that is neither None nor False."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(POLL_S)
