"""A view that is kept fresh in the background, and a revision that others can wait for.

A hint (a watch, say) makes the view be refreshed at once. Hints get lost, so it is also refreshed every so often. A
refresh that fails leaves the view as it was, and is made again with the next hint or tick.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from catena.errors import CatenaError
from catena.runtime.clock import Clock
from catena.runtime.tasks import Tasks

log = logging.getLogger(__name__)


class Revision:
    """A number that goes up, and can be waited for."""

    def __init__(self) -> None:
        self.number = 0
        self._raised = asyncio.Event()

    def advance(self) -> None:
        self.number += 1
        self._raised.set()
        self._raised = asyncio.Event()

    async def beyond(self, number: int) -> None:
        """Return once the revision is above `number`; at once if it is already."""
        while self.number <= number:
            await self._raised.wait()


class Refresher:
    """Three tasks; `close` of `tasks` ends them. One refresh runs at a time."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        tasks: Tasks,
        every_s: float,
        hint: Callable[[], Awaitable[None]],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """`hint` returns when there may be something new; `name` says in the log what is refreshed."""
        self._name = name
        self._clock = clock
        self._every_s = every_s
        self._hint = hint
        self._refresh = refresh
        self._due = asyncio.Event()
        self._trouble: str | None = None
        tasks.spawn("wait for hints", self._wait_for_hints())
        tasks.spawn("tick", self._tick())
        tasks.spawn("refresh", self._run())

    async def _wait_for_hints(self) -> None:
        while True:
            try:
                await self._hint()
            except CatenaError:
                await self._clock.sleep(self._every_s)
            self._due.set()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(self._every_s)
            self._due.set()

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._refresh()
            except CatenaError as error:
                self._say(f"{type(error).__name__}: {error}")
            else:
                self._say(None)

    def _say(self, trouble: str | None) -> None:
        """Once for each kind of trouble, and once when it is over: not again with every try."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble is None:
            log.warning("%s: fresh again", self._name)
        else:
            log.warning("%s: cannot be refreshed, and stays as it is: %s", self._name, trouble)
