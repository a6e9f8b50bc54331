from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.loadtest.histogram import MAX_US, Histogram, bucket_of, merged, top_of

MICROSECONDS = st.integers(0, MAX_US)


@given(MICROSECONDS)
def test_a_bucket_holds_its_value_and_is_narrow(value: int) -> None:
    top = top_of(bucket_of(value))
    assert value <= top <= value * (1 + 1 / 32)


@given(MICROSECONDS, MICROSECONDS)
def test_buckets_keep_the_order(a: int, b: int) -> None:
    assert (bucket_of(a) <= bucket_of(b)) or a > b


def test_small_values_are_exact_and_the_longest_has_an_end() -> None:
    assert [top_of(bucket_of(value)) for value in range(64)] == list(range(64))
    assert bucket_of(-5) == 0
    assert bucket_of(10**18) == bucket_of(MAX_US)


@given(st.lists(st.integers(0, 10**8), min_size=1), st.floats(0, 100))
def test_a_percentile_is_not_below_the_true_one_and_not_far_above(values: list[int], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value / 1e6)
    ordered = sorted(values)
    rank = max(1, -(-len(values) * percent // 100))
    true = ordered[int(rank) - 1]
    found = histogram.percentile_ms(percent)
    assert found is not None
    assert (true - 1) / 1000 <= found <= (true + 1) * (1 + 1 / 32) / 1000 + 0.001


def test_two_are_added_by_their_counts() -> None:
    fast, slow = Histogram(), Histogram()
    fast.add(0.001, times=99)
    slow.add(1.0)
    both = merged([fast.counts, slow.counts])
    assert both.total == 100
    assert both.percentile_ms(50) == pytest.approx(1.0, rel=0.04)
    assert both.percentile_ms(100) == pytest.approx(1000, rel=0.04)


def test_nothing_has_no_percentile_and_taking_empties() -> None:
    histogram = Histogram()
    assert histogram.percentile_ms(99) is None
    histogram.add(0.5)
    assert sum(histogram.take().values()) == 1
    assert histogram.total == 0
