"""A fair lock between processes.

SQLite lets whoever asks at the right moment write next, and a process that writes without a pause starves the others
for seconds. A plain flock is no queue either: its holder can take it again before those whom it woke have run. So there
are two locks, as in a turnstile: whoever wants to write first takes `turn`, then `write`, then lets go of `turn`. While
one process writes the next one holds `turn`, and the writer that comes back has to wait behind it.

The kernel frees both when a process dies. The files stay empty, and stay.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turnstile:
    """To be used by one thread; another thread, like another process, makes its own."""

    def __init__(self, database: Path) -> None:
        self._turn = _open(database.with_name(database.name + "-turn"))
        self._write = _open(database.with_name(database.name + "-write"))

    @contextmanager
    def pass_through(self) -> Iterator[None]:
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._write, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._turn)
        os.close(self._write)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
