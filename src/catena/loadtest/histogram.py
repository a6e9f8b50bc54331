"""Latencies as counts in buckets that grow with them: 32 buckets for each doubling, so a figure is at most 3.2% too
high.

Microseconds below 64 have a bucket each. A histogram is small whatever it has seen, and two are added by adding
counts; so percentiles of all hammers together are those of all their records, which an average of percentiles would
not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SUB_BITS = 5
SUB = 1 << SUB_BITS
MAX_US = (1 << 40) - 1
"""12 days; what is longer counts as this."""


def bucket_of(microseconds: int) -> int:
    value = min(max(microseconds, 0), MAX_US)
    shift = max(0, value.bit_length() - SUB_BITS - 1)
    return shift * SUB + (value >> shift)


def top_of(bucket: int) -> int:
    """The highest value in it."""
    shift = max(0, bucket // SUB - 1)
    return ((bucket - shift * SUB + 1) << shift) - 1


class Histogram:
    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    def add(self, seconds: float, times: int = 1) -> None:
        bucket = bucket_of(int(seconds * 1e6))
        self.counts[bucket] = self.counts.get(bucket, 0) + times

    def take(self) -> dict[int, int]:
        """What it has, and begin anew."""
        counts, self.counts = self.counts, {}
        return counts

    def merge(self, counts: Mapping[int, int]) -> None:
        for bucket, times in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + times

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def percentile_ms(self, percent: float) -> float | None:
        """Not less than what so many percent of the values are below; None if there are no values."""
        wanted = self.total * percent / 100
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted and seen > 0:
                return top_of(bucket) / 1000
        return None


def merged(many: Iterable[Mapping[int, int]]) -> Histogram:
    histogram = Histogram()
    for counts in many:
        histogram.merge(counts)
    return histogram
