from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.loadtest.pace import Pace


@given(st.floats(0.5, 1e6), st.floats(0.1, 1e3), st.integers(1, 8))
def test_what_is_due_is_due_at_its_time_and_stays_due(per_s: float, seconds: float, of: int) -> None:
    for number in range(of):
        pace = Pace.of(100.0, seconds, per_s, number, of)
        for each in {0, pace.total // 2, pace.total - 1}:
            if 0 <= each < pace.total:
                assert pace.due_by(pace.due_at(each) + 1e-6) >= each + 1
                assert pace.due_by(pace.due_at(each) - 1e-3) <= each + 1e-3 * pace.per_s + 1
        assert pace.due_by(1e9) == pace.total
        assert pace.due_by(99.9) == 0


def test_several_share_a_rate_and_take_turns() -> None:
    paces = [Pace.of(0.0, 2.0, 10.0, number, 4) for number in range(4)]
    assert sum(pace.total for pace in paces) == 20
    times = sorted(pace.due_at(number) for pace in paces for number in range(pace.total))
    assert times == pytest.approx([number / 10 for number in range(20)])


def test_a_stall_is_made_up_for() -> None:
    pace = Pace.of(0.0, 10.0, 100.0)
    assert pace.due_by(1.0) == 101
    assert pace.due_by(6.0) == 601
    assert pace.due_at(300) == 3.0
