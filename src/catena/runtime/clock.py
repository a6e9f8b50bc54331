"""Time. Deadlines use `monotonic`, stored timestamps use `now_ms`, waiting uses `sleep`; nothing else knows a clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970. May jump; MUST NOT decide safety."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
