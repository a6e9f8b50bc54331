"""Who is struck, when, and a count of it: processes die or freeze at named steps and at any await."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sim.history import History
from sim.loop import Chance, Process, SimLoop
from sim.scenario import ProcessFaults

PAUSE_S_MAX = 30.0
AWAIT = "any await"


class Blow(enum.Enum):
    CRASH = "crash"
    PAUSE = "pause"


class Moment(enum.Enum):
    BEFORE = "before"
    APPLIED = "applied"
    """The store has done it, and the answer is under way."""


class Strike(NamedTuple):
    blow: Blow
    moment: Moment


@dataclass
class Tally:
    """How often each step was taken, each crash point hit, and each store fault met; over one run or many."""

    steps: Counter[str] = field(default_factory=Counter)
    strikes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By step, moment and blow."""
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.steps.update(other.steps)
        self.strikes.update(other.strikes)
        self.faults.update(other.faults)


class Chaos:
    """Strikes processes until `heal`: once at each of the aims, and elsewhere up to a number of times."""

    def __init__(self, loop: SimLoop, random: Chance, faults: ProcessFaults, history: History, tally: Tally) -> None:
        self._loop = loop
        self._random = random
        self._faults = faults
        self._history = history
        self._tally = tally
        self._left = faults.strikes_max
        self._aims = set(faults.aims)
        self._on_crash: Callable[[Process], None] = lambda _: None
        self._healed = False

    def start(self, on_crash: Callable[[Process], None]) -> None:
        """`on_crash` is told of each process that died."""
        self._on_crash = on_crash
        self._aim_at_an_await()

    def heal(self) -> None:
        """No process is struck from now on. Those that are paused are woken by their timers."""
        self._healed = True

    def draw(self, process: Process | None, step: str) -> Strike | None:
        """Whether the process that is about to take this step is to be struck."""
        self._tally.steps[step] += 1
        faults = self._faults
        if self._healed or process is None:
            return None
        if step not in self._aims:
            chance = faults.target_strike if step in faults.targets else faults.step_strike
            if self._left <= 0 or self._random.random() >= chance:
                return None
        return Strike(self._draw_blow(), self._random.choice((Moment.BEFORE, Moment.APPLIED)))

    def strike(self, process: Process, step: str, strike: Strike) -> None:
        """A process that has died or frozen meanwhile can't be struck any more."""
        if not process.alive or process.paused or self._healed:
            return
        if step in self._aims:
            self._aims.remove(step)
        elif self._left > 0:
            self._left -= 1
        else:
            return
        self._tally.strikes[step, strike.moment.value, strike.blow.value] += 1
        self._history.note(f"{process} {strike.blow.value} {strike.moment.value} {step}")
        if strike.blow is Blow.CRASH:
            self._loop.crash(process)
            self._loop.call_soon(self._on_crash, process, context=self._loop.outside)
        else:
            self._loop.pause(process)
            self._loop.call_later(self._draw_pause_s(process), self._resume, process, context=self._loop.outside)

    def _draw_pause_s(self, _process: Process) -> float:
        return PAUSE_S_MAX * self._random.random() ** 2

    def _draw_blow(self) -> Blow:
        return Blow.PAUSE if self._random.random() < self._faults.pauses else Blow.CRASH

    def _resume(self, process: Process) -> None:
        self._history.note(f"{process} goes on")
        self._loop.resume(process)

    def _aim_at_an_await(self) -> None:
        if self._faults.await_gap:
            self._loop.interrupt_in(1 + int(self._faults.await_gap * 2 * self._random.random()), self._strike_at_await)

    def _strike_at_await(self, process: Process) -> None:
        self.strike(process, AWAIT, Strike(self._draw_blow(), Moment.BEFORE))
        if not self._healed and self._left > 0:
            self._aim_at_an_await()
