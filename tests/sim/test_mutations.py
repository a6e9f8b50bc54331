"""Every deliberate bug is caught; so the rules that they break are really checked."""

from __future__ import annotations

import pytest

from sim.group_mutations import GROUP_MUTATIONS
from sim.mutations import MUTATIONS, Mutation
from sim.pipeline_mutations import PIPELINE_MUTATIONS
from sim.run import run_seed
from tests.sim.likely import LIKELY, catch

SEEDS_MAX = 500


def test_there_are_enough() -> None:
    assert len(MUTATIONS) >= 12
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_deliberate_bug_is_caught(mutation: Mutation) -> None:
    caught = catch(mutation, SEEDS_MAX)
    assert caught is not None, f"{mutation.name} goes unnoticed for {SEEDS_MAX} seeds"
    assert run_seed(caught.seed).violations == [], "the seed fails without the bug, too"


def test_likely_seeds_are_those_of_bugs_that_there_are() -> None:
    named = {mutation.name for mutation in (*MUTATIONS, *GROUP_MUTATIONS, *PIPELINE_MUTATIONS)}
    assert named >= set(LIKELY)
