"""Whole runs: a hundred seeds of each scenario are clean, and a seed is the same bytes wherever it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.__main__ import GROUPS, LOG, PIPELINE, Scenario
from sim.run import run_seed

ROOT = Path(__file__).resolve().parents[2]
PRINT_FINGERPRINTS = (
    "import sys; from sim.__main__ import run_seeds; "
    "print(*(result.fingerprint for result in run_seeds(sys.argv[1], range(6))))"
)

each_scenario = pytest.mark.parametrize("scenario", [LOG, GROUPS, PIPELINE], ids=lambda scenario: scenario.name)


@each_scenario
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_seeds_are_clean(first: int, scenario: Scenario) -> None:
    for seed in range(first, first + 20):
        result = scenario.run_seed(seed, False)
        assert result.violations == [], f"replay with: python -m sim run --scenario {scenario.name} --seed {seed} -v"


def fingerprints_in_another_process(scenario: Scenario, hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRINT_FINGERPRINTS, scenario.name],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@each_scenario
def test_the_same_seed_gives_the_same_bytes(scenario: Scenario) -> None:
    here = [scenario.run_seed(seed, False).fingerprint for seed in range(6)]
    assert fingerprints_in_another_process(scenario, "1") == here
    assert fingerprints_in_another_process(scenario, "2") == here
    assert len(set(here)) == len(here)


def test_what_ran_before_leaves_no_trace() -> None:
    alone = run_seed(3).fingerprint
    run_seed(4)
    assert run_seed(3).fingerprint == alone


def test_a_transcript_tells_what_happened() -> None:
    result = run_seed(1, keep_transcript=True)
    text = "\n".join(result.transcript)
    assert "append batch 0" in text
    assert "heal" in text
    assert "read 0 on" in text
    assert run_seed(1).fingerprint == result.fingerprint
