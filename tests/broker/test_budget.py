"""What all connections may hold together: the rules by themselves. `test_budget_sockets` has them over real sockets."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catena.broker.budget import Budget
from catena.wire.frames import FIRST_BYTES

MAX = 800
USUAL, LARGER = 100, 101
"""Of the usual ones 500 bytes fit, of the larger ones 200."""
FIRST = 30


class Guest:
    def __init__(self, request: int) -> None:
        self.request = request
        self.granted = self.asked = 0


class Door:
    """Who asks for room, and who was granted it. Nobody gets before others, but for who is privileged."""

    def __init__(self) -> None:
        self.budget = Budget(MAX)
        self.guests: dict[str, Guest] = {}
        self.line: list[str] = []
        self._resumes = {name: partial(self._let_in, name) for name in "abcdefghijklmnopqrstuvwxyz"}

    def ask(self, name: str, size: int, request: int = 0) -> None:
        """The first time for a request of this size, which is what is asked for if nothing is said."""
        guest = self.guests.setdefault(name, Guest(request or size))
        assert not guest.asked
        guest.asked = size
        if self.budget.ask(guest.request, size, self._resumes[name]):
            assert self.is_privileged(name) or not self._before(name)
            self._grant(guest)
        else:
            self.line.append(name)

    def leave(self, name: str) -> None:
        guest = self.guests.pop(name)
        if name in self.line:
            self.line.remove(name)
        self.budget.leave(guest.request, guest.granted, self._resumes[name])

    def is_privileged(self, name: str) -> bool:
        return self._resumes[name] in (self.budget._usual.privileged, self.budget._larger.privileged)

    @property
    def inside(self) -> list[str]:
        """Who is read."""
        return [name for name, guest in self.guests.items() if not guest.asked]

    @property
    def privileged(self) -> list[str]:
        return [name for name in self.guests if self.is_privileged(name)]

    def _let_in(self, name: str) -> None:
        assert self.is_privileged(name) or not self._before(name)
        self.line.remove(name)
        self._grant(self.guests[name])

    def _grant(self, guest: Guest) -> None:
        guest.granted += guest.asked
        guest.asked = 0

    def _before(self, name: str) -> list[str]:
        """Who waits in the same lane, and has come earlier."""
        line = self.line[: self.line.index(name)] if name in self.line else self.line
        is_usual = self.guests[name].request <= USUAL
        return [other for other in line if (self.guests[other].request <= USUAL) == is_usual]


@pytest.fixture
def door() -> Door:
    return Door()


def fill(door: Door) -> None:
    """450 of 500 bytes, and 510 with the privileged one."""
    for name in "abcde":
        door.ask(name, 90)
    door.ask("p", 60)
    assert (door.line, door.privileged) == ([], ["p"])


def test_first_come_first_served(door: Door) -> None:
    fill(door)
    door.ask("f", 90)
    door.ask("g", 5)
    door.leave("a")
    door.ask("h", 5)
    assert door.line == ["f", "g", "h"], "these two would fit, and larger ones would never get their turn"
    door.leave("b")
    assert door.line == []


def test_the_privileged_one_is_granted_everything_and_then_the_next_is(door: Door) -> None:
    for name in "abcde":
        door.ask(name, 90)
    door.ask("p", 60, 100)
    door.ask("q", 60, 100)
    door.ask("r", 60, 100)
    door.ask("p", 40)
    assert (door.line, door.privileged) == (["q", "r"], ["p"])
    assert door.budget.incoming == 550
    door.leave("p")
    assert (door.line, door.privileged) == (["r"], ["q"])
    door.leave("q")
    assert (door.line, door.privileged) == ([], ["r"])


def test_the_largest_is_granted_step_by_step(door: Door) -> None:
    door.ask("a", 200, MAX * 2)
    assert door.privileged == []
    door.ask("a", 200)
    door.ask("b", 1, LARGER)
    for size in (400, 800):
        door.ask("a", size)
    assert (door.line, door.privileged) == (["b"], ["a"])
    door.leave("a")
    assert (door.line, door.privileged) == ([], [])


def test_who_has_announced_much_and_sent_little_holds_up_nobody(door: Door) -> None:
    for name in "abcdefghij":
        door.ask(name, FIRST, USUAL)
    door.ask("x", USUAL)
    assert door.line == []


def test_larger_ones_do_not_hold_up_the_usual(door: Door) -> None:
    door.ask("a", MAX, MAX)
    door.ask("b", 1, LARGER)
    for name in "cdefg":
        door.ask(name, USUAL)
    assert (door.line, door.privileged) == (["b"], ["a"])
    assert [door.budget.is_awaited(LARGER), door.budget.is_awaited(USUAL)] == [True, False]
    door.ask("h", 1)
    door.ask("i", 1)
    assert (door.line, door.privileged) == (["b", "i"], ["a", "h"])
    assert [door.budget.is_awaited(LARGER), door.budget.is_awaited(USUAL)] == [True, True]


def test_those_that_have_to_grow_do_not_hold_up_those_that_have_not() -> None:
    budget = Budget(96 << 20)
    let_in: list[int] = []
    asked = [budget.ask(FIRST_BYTES + 1, FIRST_BYTES, partial(let_in.append, number)) for number in range(110)]
    assert not asked[-1]
    assert [budget.is_awaited(FIRST_BYTES + 1), budget.is_awaited(FIRST_BYTES)] == [True, False]
    assert all(budget.ask(FIRST_BYTES, FIRST_BYTES, partial(let_in.append, number)) for number in range(50))


@pytest.mark.parametrize(("leaves", "still"), [("p", ["g"]), ("f", []), ("g", ["f"]), ("a", ["f", "g"])])
def test_who_goes_away_makes_way(door: Door, leaves: str, still: list[str]) -> None:
    fill(door)
    door.ask("f", 90)
    door.ask("g", 5)
    door.leave(leaves)
    if leaves == "f":
        assert door.line == ["g"]
        door.leave("b")
    assert door.line == still
    assert door.budget.has_waiting == bool(still)


def test_nothing_is_granted_while_too_much_was_taken(door: Door) -> None:
    fill(door)
    door.ask("f", 90)
    door.budget.take(MAX)
    door.ask("x", LARGER)
    door.leave("p")
    assert door.line == ["f", "x"]
    assert not door.budget.is_awaited(USUAL), "nobody on its way in is to blame"
    assert not door.budget.has_waiting
    door.budget.give_back(1)
    assert door.line == []


def test_who_is_privileged_is_the_first_that_goes_on(door: Door) -> None:
    for name in "abcde":
        door.ask(name, 90)
    door.ask("p", 60, 100)
    door.ask("q", 60, 100)
    door.budget.take(MAX)
    door.ask("p", 40)
    assert door.line == ["q", "p"]
    door.budget.give_back(1)
    assert (door.line, door.privileged) == (["q"], ["p"])


def test_small_ones_are_held_up_by_what_was_taken_only(door: Door) -> None:
    called: list[str] = []
    door.ask("a", MAX * 2)
    door.budget.take(MAX - 1)
    spent = [door.budget.is_spent]
    door.budget.take(1)
    assert [*spent, door.budget.is_spent] == [False, True]
    door.budget.wait(partial(called.append, "x"))
    door.leave("a")
    assert called == []
    door.budget.give_back(1)
    assert called == ["x"]


def go_on(door: Door, name: str) -> None:
    """What a connection does whose client goes on: its buffer is doubled, or it is complete."""
    guest = door.guests[name]
    if guest.granted == guest.request:
        door.leave(name)
    else:
        door.ask(name, min(guest.granted, guest.request - guest.granted))


steps = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "go on", "go on", "go on", "leave", "take", "give back"]),
        st.sampled_from([1, USUAL - 1, USUAL, LARGER, MAX, MAX * 2]),
        st.integers(0, 30),
    ),
    min_size=20,
    max_size=120,
)


@settings(max_examples=100)
@given(steps)
def test_bounded_and_nobody_waits_for_ever(done: list[tuple[str, int, int]]) -> None:
    door, names, taken, largest = Door(), iter("abcdefghijklmnopqrstuvwxyz"), 0, 0
    for what, size, which in done:
        inside, guests = door.inside, list(door.guests)
        match what:
            case "come" if (name := next(names, None)) is not None:
                door.ask(name, min(size, FIRST), size)
                largest = max(largest, size)
            case "go on" if inside:
                go_on(door, inside[which % len(inside)])
            case "leave" if guests:
                door.leave(guests[which % len(guests)])
            case "take":
                door.budget.take(size)
                taken += size
            case "give back":
                back = min(size, taken)
                door.budget.give_back(back)
                taken -= back
        assert door.budget.incoming == sum(guest.granted for guest in door.guests.values()) <= MAX + largest
        assert sorted(door.line) == sorted(set(door.guests) - set(door.inside))
        assert taken < MAX or not door.budget.has_waiting
    door.budget.give_back(taken)
    turns = 0
    while door.line:  # all others have stopped, and nobody cuts them off
        (name, *_) = (name for name in door.privileged if door.budget.is_awaited(door.guests[name].request))
        assert name in door.inside
        go_on(door, name)
        turns += 1
        assert turns < 1000
    for name in list(door.guests):
        door.leave(name)
    assert door.budget.incoming == 0
    assert door.privileged == []
