"""What components count of themselves, for metrics and the bill: plain numbers beside what they count.

On the hot path a count is an integer that goes up, and a latency is one bisection. Nothing is computed, locked or given
a name there; whoever asks for metrics reads these numbers as they are, in one turn of the event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from types import TracebackType

import msgspec

from catena.errors import CatenaError
from catena.runtime import Clock

LATENCY_BOUNDS_S = (
    *(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0),
)
SIZE_BOUNDS = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 64 << 20)
NUMBER_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000)


class Histogram(msgspec.Struct):
    """How many values fell into which range; as JSON and for Prometheus."""

    bounds: tuple[float, ...] = LATENCY_BOUNDS_S
    """Upper bounds, inclusive; one more bucket holds what is greater than all of them."""
    buckets: list[int] = []
    sum: float = 0.0

    def __post_init__(self) -> None:
        if not self.buckets:
            self.buckets = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.sum += value
        self.buckets[bisect_left(self.bounds, value)] += 1

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def copy(self) -> Histogram:
        return Histogram(self.bounds, list(self.buckets), self.sum)


class OperationCounts(msgspec.Struct):
    """Of one kind of operation of a store, since the process began to use it."""

    requests: int = 0
    """As S3 bills them: one for each range of a range_get, one for each page of a list."""
    bytes: int = 0
    """Sent by puts, received by gets."""
    errors: dict[str, int] = {}
    """By the name of the error; a Conflict or a missing object counts here, too."""
    latency: Histogram = msgspec.field(default_factory=Histogram)
    """In seconds, of each call."""

    def timing(self, clock: Clock, requests: int = 1) -> Timing:
        """Counts what is done within as one call that made so many requests."""
        self.requests += requests
        return Timing(self, clock)

    def failed(self, name: str, times: int = 1) -> None:
        add_to(self.errors, name, times)

    def copy(self) -> OperationCounts:
        return OperationCounts(self.requests, self.bytes, dict(self.errors), self.latency.copy())


class Sent(msgspec.Struct):
    """Batches that were sent to those who read."""

    requests: int = 0
    empty: int = 0
    """Requests that brought nothing: there was nothing new, or an error."""
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, batches: int, records: int, size: int) -> None:
        """What one request has brought."""
        self.requests += 1
        self.empty += not batches
        self.batches += batches
        self.records += records
        self.bytes += size


class Timing:
    """One call, from `with` to its end."""

    __slots__ = ("_began", "_clock", "_counts")

    def __init__(self, counts: OperationCounts, clock: Clock) -> None:
        self._counts = counts
        self._clock = clock

    def __enter__(self) -> OperationCounts:
        self._began = self._clock.monotonic()
        return self._counts

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._counts.latency.observe(self._clock.monotonic() - self._began)
        if kind is not None and issubclass(kind, CatenaError):
            self._counts.failed(kind.__name__)


def add_to(counts: dict[str, int], name: str, number: int = 1) -> None:
    counts[name] = counts.get(name, 0) + number
