"""How a deliberate bug is let loose and put away again, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from catena.types import Version
from sim.run import Result, run_seed


class Mutation(NamedTuple):
    name: str
    broken: Callable[[], AbstractContextManager[None]]


MUTATIONS: list[Mutation] = []


def first_catch(mutation: Mutation, seeds: Iterable[int]) -> Result | None:
    """The first of these seeds that fails while the bug is in; None if it goes unnoticed."""
    with mutation.broken():
        return next((result for result in map(run_seed, seeds) if result.violations), None)


@contextmanager
def replaced(owner: Any, name: str, new: object) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def mutation(make: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
    """Register the bug under the name of the function that lets it loose."""
    broken = contextmanager(make)
    MUTATIONS.append(Mutation(make.__name__.replace("_", " "), broken))
    return broken


async def nothing(*_: Any) -> dict[int, Version]:
    return {}
