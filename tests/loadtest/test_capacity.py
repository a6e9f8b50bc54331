from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.loadtest.capacity import Search, Step, judged
from catena.loadtest.scenario import Capacity

HOW = Capacity(start_mb_s=4, factor=2, halvings=3, max_mb_s=500)


def step(rate: float, p99_ms: float | None = 10.0, acked: float | None = None, errors: float = 0.0) -> Step:
    return Step(rate, rate if acked is None else acked, 1.0, p99_ms, errors)


def tried(search: Search, true: float) -> list[float]:
    rates = []
    while (rate := search.next_rate) is not None:
        rates.append(rate)
        search.add(step(rate, p99_ms=10.0 if rate <= true else 9_999.0))
        assert len(rates) < 100
    return rates


def test_up_by_a_factor_and_then_between_the_last_two() -> None:
    search = Search(HOW)
    assert tried(search, 21.0) == [4, 8, 16, 32, 24, 20, 22]
    assert search.best is not None
    assert search.best.rate_mb_s == 20


@given(st.floats(0.6, 2_000), st.floats(1.1, 5), st.integers(0, 6))
def test_what_is_found_is_kept_and_near_to_the_truth(true: float, factor: float, halvings: int) -> None:
    how = Capacity(start_mb_s=1.0, factor=factor, halvings=halvings, max_mb_s=1_000)
    search = Search(how)
    tried(search, true)
    best = search.best
    if best is None:
        assert true < 1.0
        return
    assert best.rate_mb_s <= true
    if true >= 1_000:
        assert best.rate_mb_s == 1_000
    elif true >= 1.0:
        assert best.rate_mb_s * (1 + (factor - 1) / 2**halvings) * 1.05 >= true


def test_a_start_that_is_too_much_is_gone_down_from() -> None:
    search = Search(HOW)
    assert tried(search, 0.9)[:4] == [4, 2, 1, 0.5]
    hopeless = Search(HOW)
    assert len(tried(hopeless, 0.0)) <= 7
    assert hopeless.best is None


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (step(10, p99_ms=1_500.0), "p99 1,500 ms is above 1,000 ms"),
        (step(10, p99_ms=None), "nothing was acked"),
        (step(10, errors=0.01), "1.00% failed or were dropped"),
        (step(10, acked=9.0), "only 9.00 of 10.00 MB/s were acked"),
        (step(10), ""),
    ],
)
def test_why_a_step_is_too_much(found: Step, why: str) -> None:
    assert judged(found, Capacity()).broke == why


@pytest.mark.parametrize(
    ("late_ms", "cores", "busy", "limit"),
    [
        (None, None, None, "cluster"),
        (240.0, 1.0, 1.0, "cluster"),
        (260.0, 0.95, 0.6, "hammers"),
        (260.0, 0.95, 1.0, "hammers"),
        (260.0, 0.4, 1.0, "machine"),
        (260.0, 0.4, 0.6, "hammers"),
        (260.0, None, None, "hammers"),
    ],
)
def test_a_stalled_hammer_is_not_taken_for_a_slow_cluster(
    late_ms: float | None, cores: float | None, busy: float | None, limit: str
) -> None:
    slow = Step(10, 10, 1.0, 1_500.0, 0.0, late_ms=late_ms, hammer_cores=cores, host_busy=busy)
    found = judged(slow, Capacity())
    assert found.limit == limit
    assert ("hammers were late themselves, 260 ms" in found.broke) == (limit != "cluster")
    kept = judged(msgspec.structs.replace(slow, p99_ms=900.0), Capacity())
    assert (kept.limit, kept.broke) == ("", "")


def test_what_limits_a_search() -> None:
    search = Search(HOW)
    assert search.limit == ""
    search.add(step(4))
    assert search.limit == ""
    search.add(msgspec.structs.replace(step(8, p99_ms=9_999.0), late_ms=9_000.0))
    assert search.limit == "hammers"
    search.add(step(6, p99_ms=9_999.0))
    assert search.limit == "cluster"
    unlimited = Search(HOW)
    tried(unlimited, 1e9)
    assert unlimited.limit == "max_mb_s"
