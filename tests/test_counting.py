"""Numbers that go up."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from catena.counting import Histogram, OperationCounts
from catena.errors import Conflict, StoreUnavailable
from catena.runtime import SystemClock


class ManualClock(SystemClock):
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def fail(counts: OperationCounts, clock: ManualClock) -> None:
    with counts.timing(clock, requests=4):
        clock.now += 3
        raise StoreUnavailable("away")


def test_a_value_falls_into_the_first_bucket_that_holds_it() -> None:
    found = Histogram((1, 10, 100))
    for value in (0, 1, 2, 10, 11, 100, 101, 1e9):
        found.observe(value)
    assert found.buckets == [2, 2, 2, 2]
    assert (found.count, found.sum) == (8, 1e9 + 225)


def test_two_histograms_share_nothing() -> None:
    one, other = Histogram(), Histogram()
    one.observe(1)
    copied = one.copy()
    one.observe(1)
    assert (one.count, other.count, copied.count) == (2, 0, 1)
    assert OperationCounts().latency is not OperationCounts().latency


def test_it_is_json() -> None:
    found = Histogram((1, 10))
    found.observe(5)
    assert msgspec.json.encode(found) == b'{"bounds":[1,10],"buckets":[0,1,0],"sum":5.0}'
    assert msgspec.json.decode(msgspec.json.encode(found), type=Histogram) == found


def test_what_fails_is_timed_and_named() -> None:
    clock, counts = ManualClock(), OperationCounts()
    with counts.timing(clock) as inside:
        inside.bytes += 3
        clock.now += 2
    with pytest.raises(StoreUnavailable):
        fail(counts, clock)
    assert (counts.requests, counts.bytes, counts.errors) == (5, 3, {"StoreUnavailable": 1})
    assert (counts.latency.count, counts.latency.sum) == (2, 5)


def test_only_our_errors_are_failures_of_the_store() -> None:
    counts = OperationCounts()
    with pytest.raises(asyncio.CancelledError), counts.timing(ManualClock()):
        raise asyncio.CancelledError
    with pytest.raises(Conflict), counts.timing(ManualClock()):
        raise Conflict("k", None)
    assert (counts.latency.count, counts.errors) == (2, {"Conflict": 1})
