"""Every deliberate bug of groups is caught; so the rules that they break are really checked."""

from __future__ import annotations

import pytest

from sim.__main__ import main
from sim.group_mutations import GROUP_MUTATIONS
from sim.group_run import run_seed
from sim.mutating import Mutation
from sim.mutations import MUTATIONS
from tests.sim.likely import catch

SEEDS_MAX = 500


def test_there_are_enough() -> None:
    assert len(GROUP_MUTATIONS) >= 20
    assert len({mutation.name for mutation in (*MUTATIONS, *GROUP_MUTATIONS)}) == len(MUTATIONS) + len(GROUP_MUTATIONS)


@pytest.mark.parametrize("mutation", GROUP_MUTATIONS, ids=[mutation.name for mutation in GROUP_MUTATIONS])
def test_a_deliberate_bug_is_caught(mutation: Mutation) -> None:
    caught = catch(mutation, SEEDS_MAX)
    assert caught is not None, f"{mutation.name} goes unnoticed for {SEEDS_MAX} seeds"
    assert run_seed(caught.seed).violations == [], "the seed fails without the bug, too"


def test_a_failure_prints_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    broken = next(mutation for mutation in GROUP_MUTATIONS if mutation.name == "commit of any member epoch is taken")
    caught = broken.first_catch(range(SEEDS_MAX))
    assert caught is not None
    with broken.broken():
        assert main(["run", "--scenario", "groups", "--seeds", "1", "--start", str(caught.seed), "--jobs", "1"]) == 1
    assert f"python -m sim run --scenario groups --seed {caught.seed}" in capsys.readouterr().out
    assert main(["mutations", "--only", broken.name, "--seeds", str(caught.seed + 1)]) == 0
