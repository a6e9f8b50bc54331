from __future__ import annotations

import itertools

import pytest

from tests.wire import fuzz


def test_whatever_comes_is_read_or_refused() -> None:
    report = fuzz.run(5000, seed=1)
    assert report.read > 1000
    assert report.refused > 1000
    assert report.growth_mb < fuzz.MAX_GROWTH_MB


def test_the_same_seed_makes_the_same_inputs() -> None:
    first, second = fuzz.run(500, seed=2), fuzz.run(500, seed=2)
    assert (first.read, first.refused) == (second.read, second.refused)
    assert first.read != fuzz.run(500, seed=3).read


def test_it_would_notice_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_frame: memoryview) -> None:
        raise IndexError

    monkeypatch.setattr(fuzz, "parse_request", broken)
    with pytest.raises(IndexError) as caught:
        fuzz.run(100, seed=1)
    assert "Request-v" in caught.value.__notes__[0]


def test_it_would_notice_what_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "LIMIT_S", 0.05)
    with pytest.raises(fuzz.TooSlow), fuzz.cpu_limit():
        sum(number for number in itertools.count())
