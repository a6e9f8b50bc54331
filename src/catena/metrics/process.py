"""What this process takes of its machine, as Linux tells it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import msgspec

PROC = Path("/proc/self")


class ProcessFigures(msgspec.Struct, frozen=True):
    cpu_seconds: float
    """Of all threads, since it began."""
    resident_bytes: int
    open_fds: int
    max_fds: int
    threads: int


def look(proc: Path = PROC) -> ProcessFigures:
    """Where there is no /proc, what can't be told is 0."""
    times = os.times()
    try:
        resident_bytes = int((proc / "statm").read_bytes().split()[1]) * resource.getpagesize()
        # Behind the name of the program, which is in parentheses and may hold anything.
        threads = int((proc / "stat").read_bytes().rpartition(b")")[2].split()[17])
        open_fds = len(os.listdir(proc / "fd"))
    except (OSError, ValueError, IndexError):
        resident_bytes = threads = open_fds = 0
    max_fds, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFigures(round(times.user + times.system, 3), resident_bytes, open_fds, max_fds, threads)
