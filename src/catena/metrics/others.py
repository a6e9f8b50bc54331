"""Some by name and all others as one, so that the number of series is bounded however many there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, TypeVar

OTHERS = "(other)"
"""No topic can have this name. A group can, and is told of with the others then."""


class Addable(Protocol):
    def add(self, other: Self) -> None: ...


F = TypeVar("F", bound=Addable)


def first_and_others(figures: Mapping[str, F], shown: int, rank: Callable[[F], Any], others: F) -> dict[str, F]:
    """So many by name, the lowest rank first, and the rest added to `others`, if there is a rest."""
    names = sorted(figures, key=lambda name: (name == OTHERS, rank(figures[name]), name))
    found = {name: figures[name] for name in names[:shown] if name != OTHERS}
    rest = [name for name in names if name not in found]
    if rest:
        for name in rest:
            others.add(figures[name])
        found[OTHERS] = others
    return found
