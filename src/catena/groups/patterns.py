"""Topic subscriptions by regular expression, in RE2's syntax and with its promise: time linear in the name.

Clients send these patterns, and Python's `re` takes exponential time for some of them, in which a node would answer
nobody. So a pattern becomes an automaton here (Thompson's construction), and that a table: a name then takes one look
for each of its characters, whatever the pattern. There are few such characters, so that a class is a set of them.

What a pattern costs it costs once, while it is read, and that is bounded (`MAX_EFFORT`, `MAX_CELLS`): one that is too
large as a table is refused, as one is that can't be read. Such are long or nested repetitions of what matches in many
ways, as in `(.?){900}a` or `.*a.{12}`.

Read are: literals, `.`, classes with ranges and negation, `\\d \\w \\s` and their opposites, groups of all kinds that
RE2 has, `|`, `* + ? {m,n}` greedy or lazy, `^ $ \\A \\z`, and `(?i)` at the beginning. A pattern matches whole names.
What RE2 refuses, such as back references and lookaround, is refused, and so is what no topic name needs (`\\b`, `\\p`).
"""

from __future__ import annotations

import string
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")

MAX_PATTERN_LENGTH = 1_000
MAX_DEPTH = 50
MAX_REPEAT = 1_000
MAX_STATES = 5_000
MAX_EFFORT = 50_000
"""Steps to make a table, each of a third of a microsecond or so."""
MAX_CELLS = 65_000
"""Of a table; two bytes each, in which the places of its rows have to fit."""
MAX_KEPT = 50
"""Tables that are kept for the next one who asks: a pattern is read to be checked, and again to be used."""

_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES = {
    "d": _DIGITS,
    "D": NAME_CHARACTERS - _DIGITS,
    "w": _WORD,
    "W": NAME_CHARACTERS - _WORD,
    "s": frozenset[str](),
    "S": NAME_CHARACTERS,
}
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class Characters(NamedTuple):
    allowed: frozenset[str]


class Edge(NamedTuple):
    at_end: bool


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class Choice(NamedTuple):
    options: tuple[Node, ...]


class Repeat(NamedTuple):
    part: Node
    least: int
    most: int | None


Node: TypeAlias = Characters | Edge | Sequence | Choice | Repeat


class TopicPattern:
    """Raises ValueError, with a message for the client, when the pattern can't be read."""

    def __init__(self, text: str) -> None:
        self._table = _tabulate(text)

    def matches(self, name: str) -> bool:
        class_of, rows, at, accepting = self._table
        for character in name:
            at = rows[at + class_of.get(character, 0)]
            if not at:
                return False
        return at in accepting


NOWHERE = 0
MATCH = 0
MATCHED = 1 << MATCH


class _Table(NamedTuple):
    """A row for each set of states that a name leads to; the first one is of none, and from it nothing leads on."""

    class_of: dict[str, int]
    """Characters that no part of the pattern tells apart are one class; 0 is of those that no part takes."""
    rows: array[int]
    """Where the next row begins, for each class."""
    first: int
    accepting: frozenset[int]


@lru_cache(MAX_KEPT)
def _tabulate(text: str) -> _Table:
    machine = _Machine(_Parser(text).parse())
    class_of, classes = _classes(machine)
    width = len(set(class_of.values())) + 1
    first = machine.reach(machine.first, at_start=True)
    found = list(dict.fromkeys((NOWHERE, first)))
    begins = {states: number * width for number, states in enumerate(found)}
    rows = array("H")
    for states in found:
        row = array("H", bytes(2 * width))
        for character_class, reached in _moves(machine, classes, states).items():
            if reached not in begins:
                if (len(begins) + 1) * width > MAX_CELLS:
                    raise _too_costly()
                begins[reached] = len(begins) * width
                found.append(reached)
            row[character_class] = begins[reached]
        rows += row
    accepting = frozenset(begin for states, begin in begins.items() if states & MATCHED)
    return _Table(class_of, rows, begins[first], accepting)


def _classes(machine: _Machine) -> tuple[dict[str, int], dict[frozenset[str], list[int]]]:
    """The class of each character, and the classes that each set of characters is made of."""
    takers: dict[str, list[int]] = {}
    kinds = dict.fromkeys(machine.allowed)
    for number, allowed in enumerate(kinds):
        machine.spend(len(allowed))
        for character in allowed:
            takers.setdefault(character, []).append(number)
    numbers: dict[tuple[int, ...], int] = {}
    class_of = {character: numbers.setdefault(tuple(by), len(numbers) + 1) for character, by in takers.items()}
    return class_of, {allowed: list({class_of[character]: None for character in allowed}) for allowed in kinds}


def _moves(machine: _Machine, classes: dict[frozenset[str], list[int]], states: int) -> dict[int, int]:
    """Where each class of characters leads from these states."""
    moves: dict[int, int] = {}
    for state in _bits(states & ~MATCHED):
        after = machine.after(state)
        taken = classes[machine.allowed[state]]
        machine.spend(1 + len(taken))
        for character_class in taken:
            moves[character_class] = moves.get(character_class, 0) | after
    return moves


def _bits(states: int) -> Iterator[int]:
    while states:
        lowest = states & -states
        yield lowest.bit_length() - 1
        states ^= lowest


def _too_costly() -> ValueError:
    return ValueError("the regular expression is too costly to match: it needs fewer or shorter repetitions")


class _Machine:
    """States that take a character each, or jump on without one. A set of them is a number with a bit for each."""

    def __init__(self, node: Node) -> None:
        self._effort = 0
        self.allowed: list[frozenset[str]] = []
        self._targets: list[int] = []
        self._jumps: list[tuple[int, ...]] = []
        self._edges: dict[int, bool] = {}
        self._after: dict[int, int] = {}
        self._state()
        self.first = self._build(node, MATCH)

    def spend(self, effort: int) -> None:
        self._effort += effort
        if self._effort > MAX_EFFORT:
            raise _too_costly()

    def after(self, state: int) -> int:
        """Where one is after the character that this state takes."""
        target = self._targets[state]
        if target not in self._after:
            self._after[target] = self.reach(target, at_start=False)
        return self._after[target]

    def reach(self, state: int, *, at_start: bool) -> int:
        """The states that take the next character, and MATCH if the name may end here."""
        found = 0
        seen = {(state, False)}
        todo = [(state, False)]
        while todo:
            self.spend(1)
            state, at_end = todo.pop()
            if state == MATCH:
                found |= MATCHED
            elif self.allowed[state] and not at_end:  # nothing comes after the end
                found |= 1 << state
            edge = self._edges.get(state)
            if edge is False and not at_start:
                continue
            for target in self._jumps[state]:
                step = (target, at_end or edge is True)
                if step not in seen:
                    seen.add(step)
                    todo.append(step)
        return found

    def _state(self, allowed: frozenset[str] = frozenset(), target: int = 0, jumps: tuple[int, ...] = ()) -> int:
        if len(self.allowed) >= MAX_STATES:
            raise ValueError("the regular expression is too large once its repetitions are written out")
        self.allowed.append(allowed)
        self._targets.append(target)
        self._jumps.append(jumps)
        return len(self.allowed) - 1

    def _build(self, node: Node, then: int) -> int:
        """The state from which `node` and then what follows it is matched."""
        self.spend(2)  # also for what needs no state, as the repetitions of nothing, repeated
        match node:
            case Characters(allowed):
                return self._state(allowed, then)
            case Edge(at_end):
                state = self._state(jumps=(then,))
                self._edges[state] = at_end
                return state
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Choice(options):
                return self._state(jumps=tuple(self._build(option, then) for option in options))
            case Repeat(part, least, most):
                if most is None:
                    loop = self._state()
                    self._jumps[loop] = (self._build(part, loop), then)
                    then = loop
                else:
                    end = then
                    for _ in range(most - least):
                        then = self._state(jumps=(self._build(part, then), end))
                for _ in range(least):
                    then = self._build(part, then)
                return then


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN_LENGTH:
            raise ValueError(f"the regular expression is longer than {MAX_PATTERN_LENGTH} characters")
        self._any_case = text.startswith("(?i)")
        self._text = text.removeprefix("(?i)")
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._error("unmatched )")
        return node

    def _error(self, what: str) -> ValueError:
        return ValueError(f"regular expression: {what} at position {self._at}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._error("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} groups inside each other")
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self._depth -= 1
        return Choice(tuple(options)) if len(options) > 1 else options[0]

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._peek() not in "|)":
            parts.append(self._repeated(self._atom()))
        return Sequence(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._take("?")
        if self._bounds() is not None:
            raise self._error("a repetition of a repetition")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        start = self._at
        if self._take("{"):
            least = self._number()
            most = self._number() if self._take(",") else least
            if least is not None and self._take("}"):
                if least > MAX_REPEAT or (most or 0) > MAX_REPEAT or (most is not None and most < least):
                    raise self._error(f"a repetition that is not within 0 to {MAX_REPEAT}")
                return least, most
            self._at = start
        return None

    def _number(self) -> int | None:
        start = self._at
        while self._peek() in _DIGITS and self._at - start < 5:
            self._at += 1
        return int(self._text[start : self._at]) if self._at > start else None

    def _atom(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return Characters(self._class())
        if character == "\\":
            if self._peek() in ("A", "z"):
                return Edge(at_end=self._next() == "z")
            return Characters(self._escape())
        if character in "*+?":
            raise self._error("nothing to repeat")
        if character in "^$":
            return Edge(at_end=character == "$")
        return Characters(NAME_CHARACTERS if character == "." else self._literal(character))

    def _group(self) -> Node:
        if self._take("?") and not self._take(":"):
            if not (self._take("P<") or self._take("<")) or self._peek() in ("=", "!"):
                raise self._error("a kind of group that is not supported")
            while (character := self._next()) != ">":
                if character not in _WORD:
                    raise self._error("a name of a group with other characters than letters, digits and _")
        node = self._choice()
        if not self._take(")"):
            raise self._error("missing )")
        return node

    def _literal(self, character: str) -> frozenset[str]:
        return frozenset({character.lower(), character.upper()} if self._any_case else {character})

    def _escape(self) -> frozenset[str]:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROL:
            return frozenset(_CONTROL[character])
        if character.isalnum():
            raise self._error(f"the escape \\{character} is not supported")
        return frozenset(character)

    def _class(self) -> frozenset[str]:
        negated = self._take("^")
        allowed: frozenset[str] = frozenset()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            low = self._class_item()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._next()
                high = self._class_item()
                if len(low) != 1 or len(high) != 1 or min(low) > min(high):
                    raise self._error("a range of characters that is not one")
                first, last = min(low), min(high)
                low = frozenset(c for c in NAME_CHARACTERS if first <= c <= last)
            allowed |= low
        self._next()
        if self._any_case:
            allowed = frozenset(c for one in allowed for c in (one.lower(), one.upper()))
        return NAME_CHARACTERS - allowed if negated else allowed

    def _class_item(self) -> frozenset[str]:
        character = self._next()
        if character == "[" and self._peek() == ":":
            raise self._error("a named class of characters is not supported")
        return self._escape() if character == "\\" else frozenset(character)
