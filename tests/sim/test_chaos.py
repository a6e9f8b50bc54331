"""Who is struck: surely once at what the seed aims at, elsewhere as often as the seed allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.chaos import Chaos, Strike, Tally
from sim.history import History
from sim.loop import Chance, Process, SimLoop
from sim.scenario import ProcessFaults


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(seed=1)
    yield loop
    loop.bury()


def taken(chaos: Chaos, step: str) -> Strike | None:
    """A process of its own takes this step, and is struck if it is drawn."""
    process = Process("n0#1")
    strike = chaos.draw(process, step)
    if strike is not None:
        chaos.strike(process, step, strike)
    return strike


def new_chaos(loop: SimLoop, faults: ProcessFaults, tally: Tally) -> Chaos:
    return Chaos(loop, Chance(1), faults, History(), tally)


def test_an_aim_is_hit_once_and_does_not_count_against_the_others(loop: SimLoop) -> None:
    tally = Tally()
    chaos = new_chaos(loop, ProcessFaults(targets=("b",), target_strike=1.0, aims=("a",), strikes_max=1), tally)
    assert [taken(chaos, step) is not None for step in "acabb"] == [True, False, False, True, False]
    assert sum(tally.strikes.values()) == 2


def test_an_aim_that_was_missed_is_aimed_at_again(loop: SimLoop) -> None:
    tally = Tally()
    chaos = new_chaos(loop, ProcessFaults(aims=("a",)), tally)
    assert chaos.draw(Process("n0#1"), "a") is not None, "drawn, but the store refused the step: nobody is struck"
    assert taken(chaos, "a") is not None
    assert taken(chaos, "a") is None


def test_nobody_is_struck_after_healing(loop: SimLoop) -> None:
    tally = Tally()
    chaos = new_chaos(loop, ProcessFaults(targets=("b",), target_strike=1.0, aims=("a",), strikes_max=9), tally)
    chaos.heal()
    assert [taken(chaos, step) for step in "ab"] == [None, None]
    assert not tally.strikes
