"""Partitions that keep failing are set aside for a while, so that they do not cost every pass what they cost one."""

from __future__ import annotations

from typing import NamedTuple

from catena.runtime import Clock
from catena.types import TopicPartition

FAILURES = 3
"""In a row, after which a partition is set aside."""
FIRST_S = 300.0
LONGEST_S = 6 * 3600.0
MAX_REMEMBERED = 100_000


class Failing(NamedTuple):
    """A partition that failed the last time, and so often in a row."""

    failures: int
    error: str
    until: float
    """It is not tried before, by the monotonic clock."""


class SetAside:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failing: dict[TopicPartition, Failing] = {}

    def is_aside(self, tp: TopicPartition) -> bool:
        failing = self._failing.get(tp)
        return failing is not None and self._clock.monotonic() < failing.until

    def failed(self, tp: TopicPartition, error: str) -> None:
        before = self._failing.pop(tp, None)
        failures = before.failures + 1 if before is not None else 1
        again = failures - FAILURES
        pause_s = min(FIRST_S * 2 ** min(again, 20), LONGEST_S) if again >= 0 else 0.0
        self._failing[tp] = Failing(failures, error, self._clock.monotonic() + pause_s)
        if len(self._failing) > MAX_REMEMBERED:
            del self._failing[next(iter(self._failing))]

    def succeeded(self, tp: TopicPartition) -> None:
        self._failing.pop(tp, None)

    def keep(self, partitions: set[TopicPartition]) -> None:
        """The others are gone."""
        self._failing = {tp: failing for tp, failing in self._failing.items() if tp in partitions}

    @property
    def all(self) -> dict[TopicPartition, Failing]:
        """Those that failed the last time, set aside or not."""
        return dict(self._failing)
