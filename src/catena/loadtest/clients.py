"""What all hammers saw together: totals for the summary, and figures of the last moments for whoever watches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from catena.loadtest.hammers.base import Counts, Interval
from catena.loadtest.histogram import merged

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
RECENT_S = 5.0
MAX_RECENT = 10_000


class Totals(Counts):
    """Of one hammer, or of all of a role."""

    backlog: int = 0
    backlog_max: int = 0

    def take(self, interval: Interval) -> None:
        self.add(interval)
        self.backlog = interval.backlog
        self.backlog_max = max(self.backlog_max, interval.backlog)

    def merge(self, other: Totals) -> None:
        self.add(other)
        self.backlog += other.backlog
        self.backlog_max += other.backlog_max

    @property
    def unanswered(self) -> int:
        """Due, and the hammer ended or died without knowing."""
        return self.due - self.acked - self.failed - self.unknown - self.dropped

    def shown(self) -> dict[str, Any]:
        """For people and programs: percentiles instead of buckets."""
        fields: dict[str, Any] = msgspec.structs.asdict(self)
        del fields["latency"], fields["late"], fields["backlog"]
        latencies = {"latency_ms": latency_ms([self.latency]), "late_ms": latency_ms([self.late])}
        return {**fields, "unanswered": self.unanswered, **latencies}


class Clients:
    def __init__(self) -> None:
        self.by_hammer: dict[str, Totals] = {}
        self._roles: dict[str, str] = {}
        self._recent: deque[Interval] = deque(maxlen=MAX_RECENT)
        self.last_t = 0.0

    def add(self, interval: Interval) -> None:
        self._roles[interval.hammer] = interval.role
        self.by_hammer.setdefault(interval.hammer, Totals()).take(interval)
        self.last_t = max(self.last_t, interval.t)
        self._recent.append(interval)
        while self._recent and self._recent[0].t < self.last_t - RECENT_S:
            self._recent.popleft()

    def forget_recent(self) -> None:
        """Other hammers begin."""
        self._recent.clear()

    def of(self, end: str) -> Totals:
        """Of all whose role ends with this: `produce`, `kafka-consume`."""
        total = Totals()
        for name, each in self.by_hammer.items():
            if self._roles[name].endswith(end):
                total.merge(each)
        return total

    @property
    def roles(self) -> list[str]:
        return sorted(set(self._roles.values()))

    def shown(self) -> dict[str, Any]:
        """client-summary.json."""
        return {
            "produced": self.of("produce").shown(),
            "consumed": self.of("consume").shown(),
            "by_role": {role: self.of(role).shown() for role in self.roles},
            "by_hammer": {name: self.by_hammer[name].shown() for name in sorted(self.by_hammer, key=_by_number)},
        }

    def recent(self, end: str) -> tuple[float, dict[str, float | None]]:
        """Bytes in a second, and latencies, of the last few seconds."""
        some = [each for each in self._recent if each.role.endswith(end)]
        seconds: dict[str, float] = {}
        for each in some:
            seconds[each.hammer] = seconds.get(each.hammer, 0.0) + each.seconds
        spans = [span for span in seconds.values() if span > 0]
        rate = sum(each.bytes for each in some) / (sum(spans) / len(spans)) if spans else 0.0
        return rate, latency_ms(each.latency for each in some)


def _by_number(name: str) -> tuple[str, int]:
    role, _, number = name.rpartition("-")
    return role, int(number) if number.isdecimal() else 0


def latency_ms(many: Iterable[dict[int, int]]) -> dict[str, float | None]:
    histogram = merged(many)
    return {f"p{percent:g}": histogram.percentile_ms(percent) for percent in PERCENTILES}
