"""Every deliberate bug of compaction is caught."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="what compacts comes with the spark extra")

from sim.compact_mutations import COMPACT_MUTATIONS
from sim.compact_run import run_seed
from sim.mutating import Mutation

SEEDS_MAX = 200


def test_there_are_enough() -> None:
    assert len(COMPACT_MUTATIONS) >= 3
    assert len({mutation.name for mutation in COMPACT_MUTATIONS}) == len(COMPACT_MUTATIONS)


@pytest.mark.parametrize("mutation", [pytest.param(mutation, id=mutation.name) for mutation in COMPACT_MUTATIONS])
def test_a_deliberate_bug_is_caught(mutation: Mutation) -> None:
    caught = mutation.first_catch(range(SEEDS_MAX))
    assert caught is not None, f"{mutation.name} goes unnoticed for {SEEDS_MAX} seeds"
    assert run_seed(caught.seed).violations == [], "the seed fails without the bug, too"
