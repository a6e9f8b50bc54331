"""Deliberate bugs that only few seeds catch, and a seed that did when this was written down: it is tried first.

One that does so no more, since the code has changed or Python is another one, costs its run and nothing else."""

from __future__ import annotations

from itertools import chain

from sim.mutating import Mutation
from sim.trial import Result

LIKELY = {
    "chain change of unknown outcome is taken for done": 37,
    "commit is acked before it is confirmed": 235,
    "fetch is answered without a look": 79,
    "generation is told before it is stored": 26,
    "group is taken over without a new epoch": 101,
    "job begins whatever was changed since it was planned": 123,
    "job commits that the chain does not name": 76,
    "offsets are read before the group is taken over": 414,
    "renewal of unknown outcome is taken for done": 310,
    "replies do not wait for the store": 40,
    "seal takes its tail before it fences": 51,
    "unknown outcome is forgotten when the retry is refused": 113,
    "vacuum does not wait for what is under way": 25,
}


def catch(mutation: Mutation, seeds_max: int) -> Result | None:
    """A seed that catches it; None if none of so many does."""
    first = (seed for seed in [LIKELY.get(mutation.name)] if seed is not None)
    return mutation.first_catch(chain(first, range(seeds_max)))
