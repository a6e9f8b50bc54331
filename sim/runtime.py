"""Time and chance of one simulated process, in place of `catena.runtime`'s."""

from __future__ import annotations

from sim.loop import Chance, SimLoop

EPOCH_MS = 1_700_000_000_000
"""What nodes take for the time when a run begins."""
FIRST_TIMESTAMP_MS = 1000
"""What clients do, in the records that they write."""


class SimClock:
    """Virtual time. The wall clock of each process is off by its own skew, since nothing may rely on it."""

    def __init__(self, loop: SimLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self._skew_ms

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await self._loop.sleep(seconds)


class SimEntropy:
    def __init__(self, seed: int) -> None:
        self._random = Chance(seed)

    def hex_id(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def jitter(self) -> float:
        return self._random.random()
