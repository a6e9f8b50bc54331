"""Every deliberate bug of the pipeline's jobs is caught."""

from __future__ import annotations

import pytest

from sim.mutating import Mutation
from sim.pipeline_mutations import PIPELINE_MUTATIONS
from sim.pipeline_run import run_seed
from tests.sim.likely import catch

SEEDS_MAX = 500
LONG = {"vacuum reads the index before what is pending"}
"""Few seeds show these."""


def test_there_are_enough() -> None:
    assert len(PIPELINE_MUTATIONS) >= 8
    assert len({mutation.name for mutation in PIPELINE_MUTATIONS}) == len(PIPELINE_MUTATIONS)


def test_those_that_take_long_are_among_them() -> None:
    assert {mutation.name for mutation in PIPELINE_MUTATIONS} >= LONG


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(mutation, id=mutation.name, marks=[pytest.mark.long] if mutation.name in LONG else [])
        for mutation in PIPELINE_MUTATIONS
    ],
)
def test_a_deliberate_bug_is_caught(mutation: Mutation) -> None:
    caught = catch(mutation, SEEDS_MAX)
    assert caught is not None, f"{mutation.name} goes unnoticed for {SEEDS_MAX} seeds"
    assert run_seed(caught.seed).violations == [], "the seed fails without the bug, too"
