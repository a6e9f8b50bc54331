"""What only the group scenario has; whole runs of it are in `test_run`."""

from __future__ import annotations

import pytest

from sim import group_scenario
from sim.__main__ import main
from sim.group_run import run_seed
from sim.group_scenario import Incident
from sim.group_steps import GROUP_STEPS


@pytest.mark.parametrize("incident", list(Incident))
@pytest.mark.parametrize("transact", [True, False])
def test_a_stable_group_survives_its_coordinator(incident: Incident, transact: bool) -> None:
    """Nobody has to join again, with either way to write."""
    drawn = (group_scenario.draw(seed) for seed in range(1000))
    seed = next(each.seed for each in drawn if (each.incident, each.transact) == (incident, transact))
    result = run_seed(seed, keep_transcript=True)
    assert f"incident: {incident.value}" in "\n".join(result.transcript)
    assert result.violations == []


def test_the_command_line_runs_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--scenario", "groups", "--seeds", "4", "--jobs", "2"]) == 0
    printed = capsys.readouterr().out
    assert "groups: 4 of 4 seeds clean" in printed
    assert "log:" not in printed
    for step in GROUP_STEPS:
        assert step in printed
    assert main(["run", "--scenario", "groups", "--seed", "0", "-v"]) == 0
    assert "commit" in capsys.readouterr().out
