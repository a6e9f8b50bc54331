"""How a deliberate bug is let loose and put away again, and the list of those of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, TypeAlias

from catena.types import Version
from sim.run import run_seed
from sim.trial import Result

Broken: TypeAlias = Callable[[], AbstractContextManager[None]]


class Mutation(NamedTuple):
    name: str
    broken: Broken
    run_seed: Callable[[int], Result]
    """Of the scenario that must catch it."""

    def first_catch(self, seeds: Iterable[int]) -> Result | None:
        """The first of these seeds that fails while the bug is in; None if it goes unnoticed."""
        with self.broken():
            return next((result for result in map(self.run_seed, seeds) if result.violations), None)


def listing(
    mutations: list[Mutation], run_seed: Callable[[int], Result]
) -> Callable[[Callable[[], Iterator[None]]], Broken]:
    """A decorator: the bug joins the list, under the name of the function that lets it loose."""

    def add(make: Callable[[], Iterator[None]]) -> Broken:
        broken = contextmanager(make)
        mutations.append(Mutation(make.__name__.replace("_", " "), broken, run_seed))
        return broken

    return add


MUTATIONS: list[Mutation] = []
mutation = listing(MUTATIONS, run_seed)


@contextmanager
def replaced(owner: Any, name: str, new: object) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


async def nothing(*_: Any) -> dict[int, Version]:
    return {}
