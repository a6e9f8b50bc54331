"""Blocking file work, off the event loop, in a bounded pool of threads; and a lock between processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Disk:
    def __init__(self, threads: int = 8) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="catena-disk")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(*args, **kwargs))

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class FileLock:
    """Exclusive among all threads of all processes of one host. Blocking: take it on a disk thread, hold it briefly.

    It is the kernel's lock on an open file, so a process that dies lets go of it. A process that is stopped while it
    holds the lock does not, hence the time limit: TimeoutError (an OSError), and nothing was done.
    """

    POLL_SECONDS = 0.0005

    def __init__(self, path: str | os.PathLike[str], timeout_seconds: float = 10.0) -> None:
        self._path = path
        self._timeout = timeout_seconds
        # Threads of this process queue here, where waiting is cheap and fair; only one of them polls the file.
        self._turn = threading.Lock()

    @contextmanager
    def hold(self) -> Iterator[None]:
        deadline = time.monotonic() + self._timeout
        if not self._turn.acquire(timeout=self._timeout):
            raise self._timed_out()
        try:
            # Opened anew each time: a forked child shares the open files it inherits, and with them their locks.
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._lock(file, deadline)
                try:
                    yield
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)
            finally:
                os.close(file)
        finally:
            self._turn.release()

    def _lock(self, file: int, deadline: float) -> None:
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise self._timed_out() from None
                time.sleep(self.POLL_SECONDS)

    def _timed_out(self) -> TimeoutError:
        return TimeoutError(f"{self._path} was locked for {self._timeout:g} s: is a process stopped that uses it?")
