"""Wakes the watches of this process for what other processes commit.

While somebody watches, one task asks SQLite whether anyone has committed: every 2 ms at first, more and more rarely
while nothing happens, down to every 16 ms. The question (`PRAGMA data_version`) looks at shared memory only and takes
3 microseconds, so it is asked on the event loop; a thread would cost more to wake than it saves. When the answer has
changed, the `changes` table tells which keys to wake for. A ring that has moved on too far wakes everyone.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from catena.errors import CatenaError
from catena.meta.sqlite.batch_thread import BatchThread
from catena.meta.sqlite.threads import Query
from catena.meta.watches import Watches
from catena.runtime import Clock, Tasks

INTERVAL_MIN_S = 0.002
INTERVAL_MAX_S = 0.016
SLOWDOWN = 1.1
LINGER_S = 1.0
RETRY_S = 1.0

_LAST = Query("SELECT commits FROM counters", as_it_is=True)
_CHANGES = "SELECT number, origin, keys FROM changes WHERE number > ? ORDER BY number"


class OtherProcesses:
    def __init__(self, path: Path, clock: Clock, origin: str, watches: Watches, reader: BatchThread[Query]) -> None:
        """`origin` marks the commits of this process, whose watches have been woken already."""
        self._path = path
        self._clock = clock
        self._origin = origin
        self._watches = watches
        self._reader = reader
        self._following = False
        self._last_watched = 0.0

    def follow(self, tasks: Tasks) -> None:
        """Make sure that the task runs; it ends by itself when nobody has watched for a while."""
        self._last_watched = self._clock.monotonic()
        if not self._following:
            self._following = True
            tasks.spawn("watch other processes", self._follow())

    async def _follow(self) -> None:
        while self._is_watched():
            try:
                await self._wake_for_changes()
            except (CatenaError, sqlite3.Error):
                # Whoever watches looks for itself, and meets the same trouble.
                self._watches.wake_all()
                await self._clock.sleep(RETRY_S)
        self._following = False

    def _is_watched(self) -> bool:
        now = self._clock.monotonic()
        if len(self._watches):
            self._last_watched = now
        return now - self._last_watched < LINGER_S

    async def _wake_for_changes(self) -> None:
        ((last,),) = await self._reader.call(_LAST)
        # Whoever began to watch before this first look may have missed something.
        self._watches.wake_all()
        seen, pause = None, INTERVAL_MIN_S
        with closing(sqlite3.connect(self._path, timeout=0, isolation_level=None)) as connection:
            while self._is_watched():
                (data_version,) = connection.execute("PRAGMA data_version").fetchone()
                if data_version != seen:
                    last = await self._wake_after(last)
                    seen, pause = data_version, INTERVAL_MIN_S
                await self._clock.sleep(pause)
                pause = min(pause * SLOWDOWN, INTERVAL_MAX_S)

    async def _wake_after(self, number: int) -> int:
        """Wake for the commits after this one; return the number of the last."""
        rows = await self._reader.call(Query(_CHANGES, (number,), as_it_is=True))
        if rows and rows[0][0] != number + 1:
            self._watches.wake_all()
        for _, origin, keys in rows:
            if origin == self._origin:
                continue
            if keys is None:
                self._watches.wake_all()
            else:
                self._watches.wake(keys.split("\n"))
        return int(rows[-1][0]) if rows else number
