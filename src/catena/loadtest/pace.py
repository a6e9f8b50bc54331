"""When things are due in an open loop: at fixed times, whatever became of those before. Pure.

A closed loop waits for an answer before it asks again, so a server that stalls is asked less while it does, and its
stall hides in the figures. Here what is late stays due, and its latency counts from when it was due.
"""

from __future__ import annotations

from typing import NamedTuple


class Pace(NamedTuple):
    start: float
    per_s: float
    total: int
    """How many there are in all."""

    @classmethod
    def of(cls, start: float, seconds: float, per_s: float, number: int = 0, of: int = 1) -> Pace:
        """That of one among several who share a rate: they take turns, and none begins with another."""
        own = per_s / of
        return cls(start + number / per_s, own, int(seconds * own))

    def due_at(self, number: int) -> float:
        return self.start + number / self.per_s

    def due_by(self, now: float) -> int:
        """How many are due by now."""
        if now < self.start:
            return 0
        return min(self.total, int((now - self.start) * self.per_s) + 1)
