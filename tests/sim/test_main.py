"""The command line: what a clean run, a failing one and the deliberate bugs print, and how they exit."""

from __future__ import annotations

import pytest

from sim.__main__ import main
from sim.group_steps import GROUP_STEPS
from sim.mutations import MUTATIONS
from sim.pipeline_steps import PIPELINE_STEPS
from sim.steps import STEPS

BROKEN = next(mutation for mutation in MUTATIONS if mutation.name == "append is acked before it is committed")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_clean_run_says_how_often_each_crash_point_was_hit(capsys: pytest.CaptureFixture[str], jobs: str) -> None:
    assert main(["run", "--seeds", "6", "--start", "10", "--jobs", jobs]) == 0
    printed = capsys.readouterr().out
    assert "log: 6 of 6 seeds clean" in printed
    assert "groups: 6 of 6 seeds clean" in printed
    assert "pipeline: 6 of 6 seeds clean" in printed
    for step in (*STEPS, *GROUP_STEPS, *PIPELINE_STEPS):
        assert step in printed
    assert "never hit: " in printed


def test_one_seed_can_be_replayed_with_a_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--seed", "5", "-v"]) == 0
    assert "append batch 0" in capsys.readouterr().out


def test_a_failure_prints_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    caught = BROKEN.first_catch(range(50))
    assert caught is not None
    with BROKEN.broken():
        assert main(["run", "--seeds", "1", "--start", str(caught.seed), "--jobs", "1"]) == 1
    assert f"python -m sim run --seed {caught.seed}" in capsys.readouterr().out


def test_a_bug_that_goes_unnoticed_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutations", "--only", BROKEN.name, "--seeds", "50"]) == 0
    assert main(["mutations", "--only", BROKEN.name, "--seeds", "0"]) == 1
    assert "NOT CAUGHT" in capsys.readouterr().out
