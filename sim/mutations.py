"""Deliberate bugs, one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sim.run import Result, run_seed


@dataclass(frozen=True)
class Mutation:
    name: str


MUTATIONS: tuple[Mutation, ...] = ()


def first_catch(mutation: Mutation, seeds: Iterable[int]) -> Result | None:
    for seed in seeds:
        result = run_seed(seed)
        if result.violations:
            return result
    return None
