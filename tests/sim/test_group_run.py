"""Whole runs of the group scenario: a first hundred are clean, and the same seed is the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim import group_scenario
from sim.__main__ import main
from sim.group_run import run_seed
from sim.group_scenario import Incident
from sim.group_steps import GROUP_STEPS

ROOT = Path(__file__).resolve().parents[2]
FINGERPRINTS = "from sim.group_run import run_seed; print(*(run_seed(seed).fingerprint for seed in range(6)))"


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_seeds_are_clean(first: int) -> None:
    for seed in range(first, first + 20):
        result = run_seed(seed)
        assert result.violations == [], f"replay with: python -m sim run --scenario groups --seed {seed} -v"


@pytest.mark.parametrize("incident", list(Incident))
@pytest.mark.parametrize("transact", [True, False])
def test_a_stable_group_survives_its_coordinator(incident: Incident, transact: bool) -> None:
    """Nobody has to join again, with either way to write."""
    drawn = (group_scenario.draw(seed) for seed in range(1000))
    seed = next(each.seed for each in drawn if (each.incident, each.transact) == (incident, transact))
    result = run_seed(seed, keep_transcript=True)
    assert f"incident: {incident.value}" in "\n".join(result.transcript)
    assert result.violations == []


def fingerprints_in_another_process(hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", FINGERPRINTS],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_same_seed_gives_the_same_bytes() -> None:
    here = [run_seed(seed).fingerprint for seed in range(6)]
    assert fingerprints_in_another_process("1") == here
    assert fingerprints_in_another_process("2") == here
    assert len(set(here)) == len(here)


def test_the_command_line_runs_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--scenario", "groups", "--seeds", "4", "--jobs", "2"]) == 0
    printed = capsys.readouterr().out
    assert "4 of 4 seeds clean" in printed
    for step in GROUP_STEPS:
        assert step in printed
    assert main(["run", "--scenario", "groups", "--seed", "0", "-v"]) == 0
    assert "commit" in capsys.readouterr().out
