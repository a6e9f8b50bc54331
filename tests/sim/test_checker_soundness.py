"""The checker has no false alarms: whatever a perfect log does, in whatever order its clients meet, is clean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from sim.checker import check
from sim.history import (
    Append,
    Call,
    FindTime,
    History,
    LogId,
    Outcome,
    Read,
    Reconfigure,
    Seal,
    Seen,
    Start,
    Tail,
    Trim,
)
from sim.loop import Chance

LOG = LogId("t", "1" * 32, 0)


@dataclass
class PerfectLog:
    """One list, on which every call takes effect at once."""

    appends: list[Append] = field(default_factory=list)
    start: int = 0
    sealed: bool = False

    @property
    def tail(self) -> int:
        return self.appends[-1].end if self.appends else 0

    def apply(self, call: Call) -> Outcome:
        match call:
            case Append() if self.sealed:
                return Outcome.FAILED
            case Append():
                call.offset = self.tail
                self.appends.append(call)
            case Read():
                self._read(call)
            case Tail():
                call.tail = self.tail
            case Start():
                call.start = self.start
            case FindTime():
                late = [
                    each for each in self.appends if each.timestamp_ms >= call.timestamp_ms and each.end > self.start
                ]
                call.offset = max(late[0].offset, self.start) if late else None
            case Trim():
                call.offset = min(call.offset, self.tail)
                self.start = max(self.start, call.offset)
            case Seal():
                self.sealed, call.tail = True, self.tail
            case Reconfigure():
                self.sealed = False
        return Outcome.OK

    def _read(self, call: Read) -> None:
        if not self.start <= call.offset <= self.tail:
            call.out_of_range = (self.start, self.tail)
        held = [append for append in self.appends if append.end > call.offset >= self.start]
        call.seen = tuple(Seen(append.offset, append.count, append.batch) for append in held[:2])


def random_call(random: Chance, log: PerfectLog, client: str, batch: int) -> Call:
    somewhere = random.randint(0, log.tail + 1)
    return random.choice(
        (
            lambda: Append(LOG, client, 0, batch=batch, count=random.randint(1, 3), timestamp_ms=random.randint(0, 50)),
            lambda: Append(LOG, client, 0, batch=batch, count=1, timestamp_ms=random.randint(0, 50)),
            lambda: Read(LOG, client, 0, offset=somewhere),
            lambda: Read(LOG, client, 0, offset=max(log.start, somewhere - 2)),
            lambda: Tail(LOG, client, 0),
            lambda: Start(LOG, client, 0),
            lambda: FindTime(LOG, client, 0, timestamp_ms=random.randint(0, 60)),
            lambda: Trim(LOG, client, 0, offset=random.randint(0, log.start + 2)),
            lambda: Seal(LOG, client, 0),
            lambda: Reconfigure(LOG, client, 0),
        )
    )()


def tell(seed: int, spoil: Callable[[Call], None] = lambda _: None) -> History:
    """Five clients at random: each call is made, takes effect and is answered at three moments of its own.

    Some answers get lost; the effect of such a call may come much later, or never. Each answer is spoiled, if asked to.
    """
    random, history, log = Chance(seed), History(), PerfectLog()
    waiting: list[tuple[Call, Outcome | None]] = []
    homeless: list[Call] = []
    batches = 0
    for _ in range(150):
        what = random.random()
        if homeless and what < 0.05:
            log.apply(homeless.pop(random.randrange(len(homeless))))
        elif len(waiting) < 5 and what < 0.4:
            batches += 1
            call = random_call(random, log, f"c{batches}", batches)
            history.invoke(call, "")
            waiting.append((call, None))
        elif waiting:
            at = random.randrange(len(waiting))
            call, outcome = waiting.pop(at)
            if outcome is None and isinstance(call, Append | Trim | Reconfigure) and what > 0.9:
                history.unknown(call, "")
                homeless.append(call)
            elif outcome is None:
                waiting.insert(at, (call, log.apply(call)))
            elif outcome is Outcome.FAILED:
                history.failed(call, "")
            else:
                spoil(call)
                history.ok(call, "")
    position = log.start
    while position < log.tail:
        last = Read(LOG, "last", 0, offset=position, final=True)
        history.invoke(last, "")
        log.apply(last)
        history.ok(last, "")
        position = last.seen[-1].end
    return history


def test_histories_of_a_perfect_log_are_clean() -> None:
    for seed in range(1000):
        assert check(tell(seed)) == [], f"seed {seed}"


def a_tail_too_low(call: Call) -> None:
    if isinstance(call, Tail):
        call.tail = max(call.tail - 1, 0)


def a_tail_too_high(call: Call) -> None:
    if isinstance(call, Tail):
        call.tail += 1


def an_ack_one_off(call: Call) -> None:
    if isinstance(call, Append):
        call.offset += 1


def a_read_that_skips(call: Call) -> None:
    if isinstance(call, Read):
        call.seen = call.seen[1:]


def a_start_one_off(call: Call) -> None:
    if isinstance(call, Start):
        call.start += 1


def a_seal_too_low(call: Call) -> None:
    if isinstance(call, Seal):
        call.tail = max(call.tail - 1, 0)


@pytest.mark.parametrize(
    "spoil", [a_tail_too_low, a_tail_too_high, an_ack_one_off, a_read_that_skips, a_start_one_off, a_seal_too_low]
)
def test_answers_that_are_a_little_wrong_are_not(spoil: Callable[[Call], None]) -> None:
    assert any(check(tell(seed, spoil)) for seed in range(20))
