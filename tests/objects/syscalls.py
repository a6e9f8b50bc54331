"""Something happens at a named system call: a crash, an error, a long pause.

The code under test is the real one, and does not know. Python tells a profile function before and after each call of a
C function; here it looks for the one that is meant, in the threads that are started from now on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal

When = Literal["before", "after"]


@contextmanager
def at(when: When, function: Callable[..., Any], do: Callable[[], object], times: int = 1) -> Iterator[None]:
    """Do it at the first such call, or at the first few. If it raises before the call, the call is not made."""
    event = "c_call" if when == "before" else "c_return"
    left = threading.Semaphore(times)

    def look(_frame: FrameType, seen: str, called: Any) -> None:
        if seen == event and called is function and left.acquire(blocking=False):
            do()

    threading.setprofile(look)
    try:
        yield
    finally:
        while left.acquire(blocking=False):
            pass
        threading.setprofile(None)


def fail(number: int) -> Callable[[], object]:
    """What the kernel answers when it refuses."""

    def refuse() -> None:
        raise OSError(number, "injected")

    return refuse


@contextmanager
def recorded(*functions: Callable[..., Any]) -> Iterator[list[str]]:
    """The names of those of these functions that are called by threads that start from now on, in order."""
    called: list[str] = []

    def look(_frame: FrameType, seen: str, function: Any) -> None:
        if seen == "c_call" and function in functions:
            called.append(function.__name__)

    threading.setprofile(look)
    try:
        yield called
    finally:
        threading.setprofile(None)
