"""A view that is kept fresh in the background, and a revision that others can wait for.

A hint (a watch, say) makes the view be refreshed at once. Hints get lost, so it is also refreshed every so often. A
refresh that fails leaves the view as it was, and is made again with the next hint or tick.

A refresh may cost money. So a view that nobody has used for a while (`used`) is left alone by most ticks; who uses it
then gets what is there, and makes it be refreshed at once, and every so often for as long as others may come back, as
clients do who wait for a change. Hints count in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from catena.errors import CatenaError
from catena.runtime.clock import Clock
from catena.runtime.tasks import Tasks

log = logging.getLogger(__name__)

USED_S = 60.0
"""A view counts as used for so long after it was."""
UNUSED_TICKS = 10
"""So many ticks are one for a view that is not used."""


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
        is_urgent: Callable[[], bool] = lambda: True,
    ) -> None:
        """`hint` returns when there may be something new; `name` says in the log what is refreshed.

        `is_urgent` is asked at each tick: whether that one counts even if the view is not used.
        """
        self._name = name
        self._clock = clock
        self._every_s = every_s
        self._hint = hint
        self._refresh = refresh
        self._is_urgent = is_urgent
        self._is_used = False
        """Since the last tick."""
        self._used_at = clock.monotonic()
        self._passed_over = 0
        """Ticks, since the last one that counted."""
        self._due = asyncio.Event()
        self._trouble: str | None = None
        tasks.spawn("wait for hints", self._wait_for_hints())
        tasks.spawn("tick", self._tick())
        tasks.spawn("refresh", self._run())

    def used(self) -> None:
        """Somebody looks at the view."""
        self._is_used = True
        if self._passed_over:
            self._passed_over = 0
            self._due.set()

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
            now = self._clock.monotonic()
            if self._is_used:
                self._is_used, self._used_at = False, now
            self._passed_over += 1
            if now - self._used_at < USED_S or self._passed_over == UNUSED_TICKS or self._is_urgent():
                self._passed_over = 0
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
