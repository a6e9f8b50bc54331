"""A clock that stands still until the test moves it."""

from __future__ import annotations

import asyncio


class ManualClock:
    def __init__(self, monotonic: float = 1000.0) -> None:
        self._now = monotonic
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return int(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, wake))
        await wake

    async def advance(self, seconds: float) -> None:
        """Let the time pass, wake whoever slept that long, and let them run on."""
        self._now += seconds
        due = [wake for until, wake in self._sleepers if until <= self._now]
        self._sleepers = [(until, wake) for until, wake in self._sleepers if until > self._now]
        for wake in due:
            if not wake.done():
                wake.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)

    def pause(self, seconds: float) -> None:
        """Let the time pass as for a process that was stopped: nobody has run in the meantime."""
        self._now += seconds
