"""The owner's side of a session, the same for every backend: renew it in time, and notice when it is lost.

The owner counts its time-to-live from before a renewal was sent, and the store from when it was applied, so the owner
stops believing in its session before the store ends it. A process that was paused past its time-to-live therefore
finds `alive` false as soon as it runs again, and never renews.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from catena.errors import OutcomeUnknown, RetryLater
from catena.runtime import Clock

RENEWALS_PER_TTL = 3


class KeptSession:
    def __init__(
        self,
        session_id: str,
        ttl_ms: int,
        started: float,
        clock: Clock,
        renew: Callable[[str, int], Awaitable[bool]],
        end: Callable[[str], Awaitable[None]],
    ) -> None:
        """`started`: monotonic time from before the session was created. `renew` answers false once it is gone."""
        self._id = session_id
        self._ttl_ms = ttl_ms
        self._ttl_s = ttl_ms / 1000
        self._deadline = started + self._ttl_s
        self._clock = clock
        self._renew = renew
        self._end = end
        self._over = False

    @property
    def id(self) -> str:
        return self._id

    @property
    def alive(self) -> bool:
        return not self._over and self._clock.monotonic() < self._deadline

    async def keep_alive(self) -> None:
        """Run in the background; returns when the session is closed or lost."""
        while self.alive:
            await self._clock.sleep(self._ttl_s / RENEWALS_PER_TTL)
            if self.alive:
                await self._renew_once()
        self._over = True

    async def close(self) -> None:
        if not self._over:
            self._over = True
            await self._end(self._id)

    async def _renew_once(self) -> None:
        sent = self._clock.monotonic()
        try:
            renewed = await self._renew(self._id, self._ttl_ms)
        except (RetryLater, OutcomeUnknown):
            return  # the next renewal comes before the deadline, or the deadline ends the session
        if renewed:
            self._deadline = sent + self._ttl_s
        else:
            self._over = True
