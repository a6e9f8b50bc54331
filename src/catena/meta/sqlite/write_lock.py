"""The lock between processes that all write transactions of a file are made under.

SQLite has a lock of its own, but no queue: those who wait for it sleep and try again, so a process that writes without
a pause starves the others for seconds. With flock the kernel wakes whoever waits, and 4 busy processes get equal
shares. It is freed by the kernel when its holder dies. The file stays empty, and stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catena.errors import StoreFull, StoreRefused


class WriteLock:
    """To be used by one thread; another thread, like another process, makes its own. Makes the folder if need be."""

    def __init__(self, database: Path) -> None:
        path = database.with_name(database.name + "-lock")
        try:
            database.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(f"no space left for the meta store {database}") from error
            raise StoreRefused(f"the meta store {database} cannot be opened: {error}") from error

    @contextmanager
    def held(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)
