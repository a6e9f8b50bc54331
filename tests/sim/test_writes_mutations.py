"""Every deliberate bug of writes by applications is caught."""

from __future__ import annotations

import pytest

from sim.mutating import Mutation
from sim.writes_mutations import WRITES_MUTATIONS
from sim.writes_run import run_seed

SEEDS_MAX = 300


def test_there_are_enough() -> None:
    assert len({mutation.name for mutation in WRITES_MUTATIONS}) == len(WRITES_MUTATIONS) >= 7


@pytest.mark.parametrize("mutation", [pytest.param(mutation, id=mutation.name) for mutation in WRITES_MUTATIONS])
def test_a_deliberate_bug_is_caught(mutation: Mutation) -> None:
    caught = mutation.first_catch(range(SEEDS_MAX))
    assert caught is not None, f"{mutation.name} goes unnoticed for {SEEDS_MAX} seeds"
    assert run_seed(caught.seed).violations == [], "the seed fails without the bug, too"
