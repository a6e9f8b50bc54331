"""Whether a blob that could be sent waits for a moment longer, for those who come back.

Producers that wait for an answer before they send more come back as soon as they have it. Were what waits sent at once,
they would part into two crowds that take turns, each waiting through the blob of the other: twice as many blobs, and no
answer sooner. So when all that was in flight is answered, the next blob waits until as many are there as were answered,
for a part of the time that these took at most. Where they do not come back it soon stops to wait. No I/O.
"""

from __future__ import annotations

SHARE = 2
"""It waits for this part of the time that the last ones took: a half."""
WAIT_MAX_S = 0.005
PASSES = 16
"""Times that it does not wait, after it waited for nothing."""


class Company:
    __slots__ = ("_answered", "_began", "_expected", "_in_flight", "_passes", "_until")

    def __init__(self) -> None:
        self._in_flight = 0
        self._began = self._until = 0.0
        self._answered = self._expected = self._passes = 0

    def sent(self, entries: int, now: float) -> None:
        if not self._in_flight:
            self._began = now
        self._in_flight += entries

    def all_answered(self, waiting: int, now: float) -> None:
        """Nothing is in flight any more; so many entries have come in meanwhile."""
        self._answered, self._in_flight = self._in_flight, 0
        self._expected = waiting + self._answered
        self._until = now
        if self._passes:
            self._passes -= 1
        elif self._expected > 1:
            self._until += min((now - self._began) / SHARE, WAIT_MAX_S)

    def wait_s(self, waiting: int, now: float) -> float:
        """How long so many entries wait for more; up to 0: not at all."""
        return 0.0 if waiting >= self._expected else self._until - now

    def is_over(self, waiting: int) -> None:
        """It has waited for as long as it may, and so many are there."""
        self._until = 0.0
        if self._expected - waiting > self._answered // 2:
            self._passes = PASSES
