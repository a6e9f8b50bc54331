"""A value that costs something to have: read again when somebody asks and it has become old, and never otherwise.

So a node that nobody scrapes asks the stores for nothing. Who asks often gets what there is, and it is read again
meanwhile. Who finds nothing, or what is twice as old as it may be, waits for the read, up to a moment after it began:
so one who asks once a day is not told of yesterday, and a store that hangs holds nobody up for longer. One read at a
time; one that fails leaves the value as it was, and is tried again when its time has come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from catena.errors import CatenaError
from catena.runtime import Clock, Tasks, shielded

log = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_MAX_S = 2.0
"""For a read, from its start on."""


class Lazily(Generic[T]):
    def __init__(self, name: str, read: Callable[[], Awaitable[T]], every_s: float, clock: Clock, tasks: Tasks) -> None:
        """`name` says in the log what can't be read."""
        self._name = name
        self._read = read
        self.every_s = every_s
        """From the end of one read to the next, at least."""
        self._clock = clock
        self._tasks = tasks
        self._value: T | None = None
        self._read_at = 0.0
        """When the value was."""
        self._began_at = 0.0
        self._ended_at: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._in_trouble = False
        self.failures = 0

    def start(self) -> None:
        """Reads it if it is due, and does not wait: for whoever is about to ask for several."""
        if self._reading is None and self._is_due and not self._tasks.closed:
            self._began_at = self._clock.monotonic()
            self._reading = self._tasks.spawn(f"read {self._name}", self._refresh())

    async def get(self, max_wait_s: float = WAIT_MAX_S) -> T | None:
        """None: nothing is known yet."""
        self.start()
        left_s = self._began_at + max_wait_s - self._clock.monotonic()
        if self._reading is not None and left_s > 0 and self._is_far_too_old:
            try:
                async with asyncio.timeout(left_s):
                    await shielded(self._reading)
            except TimeoutError:
                pass
        return self._value

    @property
    def _is_due(self) -> bool:
        return self._ended_at is None or self._clock.monotonic() - self._ended_at >= self.every_s

    @property
    def _is_far_too_old(self) -> bool:
        return self._value is None or self._clock.monotonic() - self._read_at >= 2 * self.every_s

    async def _refresh(self) -> None:
        try:
            self._value = await self._read()
            self._read_at = self._clock.monotonic()
            self._in_trouble = False
        except CatenaError as error:
            self.failures += 1
            if not self._in_trouble:  # not again with each try
                log.warning("metrics: %s can't be read: %s: %s", self._name, type(error).__name__, error)
            self._in_trouble = True
        finally:
            self._ended_at = self._clock.monotonic()
            self._reading = None
