"""Topic subscriptions by regular expression, in RE2's syntax and with its promise: time linear in the name.

Clients send these patterns, and Python's `re` takes exponential time for some of them, in which a node would answer
nobody. So a pattern becomes an automaton here (Thompson's construction), whose sets of states are made as names need
them and kept. Topic names have few characters, so a class of characters is a set of them.

Read are: literals, `.`, classes with ranges and negation, `\\d \\w \\s` and their opposites, groups of all kinds that
RE2 has, `|`, `* + ? {m,n}` greedy or lazy, `^ $ \\A \\z`, and `(?i)` at the beginning. A pattern matches whole names.
What RE2 refuses, such as back references and lookaround, is refused, and so is what no topic name needs (`\\b`, `\\p`).
"""

from __future__ import annotations

import string
from typing import NamedTuple, TypeAlias

NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")

MAX_PATTERN_LENGTH = 1_000
MAX_DEPTH = 50
MAX_REPEAT = 1_000
MAX_STATES = 5_000
MAX_KNOWN_SETS = 2_000

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
        self._steps: list[tuple[frozenset[str], int]] = []
        self._jumps: list[tuple[int, ...]] = []
        self._edges: dict[int, bool] = {}
        self._match = self._state()
        self._first = self._build(_Parser(text).parse(), self._match)
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        states = self._closure([self._first], at_start=True, at_end=not name)
        for i, character in enumerate(name):
            if not states:
                return False
            is_last = i == len(name) - 1
            key = (states, character)
            found = None if is_last else self._moves.get(key)
            if found is None:
                stepped = [target for s in states for allowed, target in [self._steps[s]] if character in allowed]
                found = self._closure(stepped, at_start=False, at_end=is_last)
                if not is_last and len(self._moves) < MAX_KNOWN_SETS:
                    self._moves[key] = found
            states = found
        return self._match in states

    def _closure(self, start: list[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        seen = set(start)
        todo = list(start)
        while todo:
            state = todo.pop()
            edge = self._edges.get(state)
            if edge is not None and not (at_end if edge else at_start):
                continue
            for target in self._jumps[state]:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return frozenset(seen)

    def _state(self, allowed: frozenset[str] = frozenset(), target: int = 0, jumps: tuple[int, ...] = ()) -> int:
        if len(self._steps) >= MAX_STATES:
            raise ValueError("the regular expression is too large once its repetitions are written out")
        self._steps.append((allowed, target))
        self._jumps.append(jumps)
        return len(self._steps) - 1

    def _build(self, node: Node, then: int) -> int:
        """The state from which `node` and then what follows it is matched."""
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
