"""Who waits for news of which log: one follower for each log that anybody waits for, however many they are.

While a log is followed its `seen_tail` moves with the log. So where nothing new is seen nothing is new, but for what is
on its way. Of a log that nobody follows what was seen may be of any age.
"""

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
LINGER_S = 5.0
"""Most who leave come back at once."""


class _Waiting(dict[Wake, None]):
    asked_at: float
    """When somebody last asked for this log, by the monotonic clock."""


class Tails:
    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._waiting: dict[VirtualLog, _Waiting] = {}

    def subscribe(self, of: VirtualLog, wake: Wake) -> None:
        """Call `wake` whenever there may be something new, until `unsubscribe`. A hint: whoever is woken looks."""
        self.follow(of)
        self._waiting[of][wake] = None

    def unsubscribe(self, of: VirtualLog, wake: Wake) -> None:
        if (waiting := self._waiting.get(of)) is not None:
            waiting.pop(wake, None)

    def follow(self, of: VirtualLog) -> bool:
        """Whether the log was followed until now. From now on it is, until nobody has asked for a while."""
        waiting = self._waiting.get(of)
        is_new = waiting is None
        if waiting is None:
            waiting = self._waiting[of] = _Waiting()
            self._tasks.spawn("follow a tail", self._follow(of, waiting))
        waiting.asked_at = self._clock.monotonic()
        return not is_new

    async def _follow(self, of: VirtualLog, waiting: _Waiting) -> None:
        try:
            while True:
                try:
                    await of.wait_for_news(of.seen_tail)
                except RetryLater:
                    await self._clock.sleep(RETRY_S)  # who waits looks by itself when its time is over
                if not waiting and self._clock.monotonic() - waiting.asked_at > LINGER_S:
                    return
                for wake in list(waiting):
                    wake(of)
        except CatenaError as error:
            log.info("%s is no longer followed: %s", of.tp, error)
        finally:
            del self._waiting[of]
            for wake in list(waiting):
                wake(of)
