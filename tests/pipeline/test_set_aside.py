"""Who keeps failing is set aside, for longer each time, and comes back once it works."""

from __future__ import annotations

import pytest

from catena.pipeline import set_aside
from catena.pipeline.set_aside import FAILURES, FIRST_S, LONGEST_S, SetAside
from catena.types import TopicId, TopicPartition
from tests.broker.world import LeapingClock


def partition(number: int = 0) -> TopicPartition:
    return TopicPartition("t", TopicId("1" * 32), number)


def test_it_takes_some_failures_in_a_row() -> None:
    aside = SetAside(LeapingClock())
    for _ in range(FAILURES - 1):
        aside.failed(partition(), "no")
        assert not aside.is_aside(partition())
    aside.succeeded(partition())
    for _ in range(FAILURES - 1):
        aside.failed(partition(), "no")
    assert not aside.is_aside(partition())
    aside.failed(partition(), "never")
    assert aside.is_aside(partition())
    assert not aside.is_aside(partition(1))
    assert [(tp, failing.failures, failing.error) for tp, failing in aside.all.items()] == [(partition(), 3, "never")]


def test_it_is_tried_again_later_and_later() -> None:
    clock = LeapingClock()
    aside = SetAside(clock)
    for _ in range(FAILURES):
        aside.failed(partition(), "no")
    pause_s = FIRST_S
    for _ in range(12):
        clock.leap(pause_s - 1)
        assert aside.is_aside(partition())
        clock.leap(1)
        assert not aside.is_aside(partition())
        aside.failed(partition(), "no")
        pause_s = min(2 * pause_s, LONGEST_S)
    aside.succeeded(partition())
    assert not aside.is_aside(partition())
    assert aside.all == {}


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "MAX_REMEMBERED", 3)
    aside = SetAside(LeapingClock())
    for number in range(5):
        aside.failed(partition(number), "no")
    assert [tp.partition for tp in aside.all] == [2, 3, 4]
    aside.keep({partition(3)})
    assert [tp.partition for tp in aside.all] == [3]
