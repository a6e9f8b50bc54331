"""Who waits for news of which log: one follower for each log that anybody waits for, however many they are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from catena.errors import CatenaError, RetryLater
from catena.runtime import Clock, Tasks
from catena.virtual_log.log import VirtualLog

log = logging.getLogger(__name__)

Wake: TypeAlias = Callable[[VirtualLog], None]

RETRY_S = 0.5


class Tails:
    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._waiting: dict[VirtualLog, dict[Wake, None]] = {}

    def subscribe(self, of: VirtualLog, wake: Wake) -> None:
        """Call `wake` whenever there may be something new, until `unsubscribe`. A hint: whoever is woken looks."""
        waiting = self._waiting.get(of)
        if waiting is None:
            waiting = self._waiting[of] = {}
            self._tasks.spawn("follow a tail", self._follow(of, waiting))
        waiting[wake] = None

    def unsubscribe(self, of: VirtualLog, wake: Wake) -> None:
        # The follower stays until the next news: most who leave come back at once.
        if (waiting := self._waiting.get(of)) is not None:
            waiting.pop(wake, None)

    async def _follow(self, of: VirtualLog, waiting: dict[Wake, None]) -> None:
        try:
            while True:
                try:
                    await of.wait_for_news(of.seen_tail)
                except RetryLater:
                    await self._clock.sleep(RETRY_S)  # who waits looks by itself when its time is over
                if not waiting:
                    return
                for wake in list(waiting):
                    wake(of)
        except CatenaError as error:
            log.info("%s is no longer followed: %s", of.tp, error)
        finally:
            del self._waiting[of]
            for wake in list(waiting):
                wake(of)
