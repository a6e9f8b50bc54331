"""Timers against a plain dictionary of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catena.groups.timers import Timers

STEPS = st.lists(st.tuples(st.sampled_from(["set", "cancel", "pop"]), st.sampled_from("abcd"), st.integers(0, 20)))


@given(STEPS)
def test_timers_do_what_a_dictionary_would_do(steps: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, float] = {}
    for step, key, time in steps:
        if step == "set":
            timers.set(key, time)
            model[key] = time
        elif step == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            due = timers.pop_due(time)
            assert (due is None) == (min(model.values(), default=time + 1) > time)
            if due is not None:
                assert model[due] == min(model.values())
                del model[due]
        assert timers.next_deadline() == min(model.values(), default=None)


def test_the_first_deadline_is_popped_first() -> None:
    timers: Timers[str] = Timers()
    timers.set("late", 3.0)
    timers.set("early", 1.0)
    timers.set("late", 2.0)
    assert [timers.pop_due(9.0), timers.pop_due(9.0), timers.pop_due(9.0)] == ["early", "late", None]


def test_heartbeats_do_not_grow_the_heap() -> None:
    timers: Timers[int] = Timers()
    for beat in range(1000):
        for member in range(10):
            timers.set(member, float(beat))
    assert len(timers._heap) == 10
