"""`catena loadtest`, as the real program where processes and signals matter."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from catena.local_cluster.processes import Process, is_running
from tests.cli.conftest import CATENA, Catena, clean_environment

SCENARIO = """
sample_every_s = 0.5
[[topics]]
name = "t"
[load]
duration_s = 1.0
warm_up_s = 0.2
rate_mb_s = 0.1
interval_s = 0.2
drain_s = 20
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(SCENARIO)
    return file


def loadtest(tmp_path: Path, *arguments: str | Path) -> tuple[int, Any, str]:
    done = subprocess.run(
        [CATENA, "loadtest", *arguments, "--json", "--results", tmp_path / "runs"],
        capture_output=True,
        env=clean_environment(),
        timeout=110,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr.decode()


def test_up_precreate_status_run_down(tmp_path: Path, scenario: Path) -> None:
    code, up, said = loadtest(tmp_path, "up", scenario)
    assert (code, said) == (0, "")
    try:
        assert [node["state"] for node in up["nodes"]] == ["ready"]
        assert loadtest(tmp_path, "precreate", scenario)[1] == {"created": ["t"]}
        assert loadtest(tmp_path, "status", scenario)[:2] == (0, up)
        code, summary, said = loadtest(tmp_path, "run", scenario, "--keep")
        assert (code, said) == (0, "")
        assert summary["clean"]
        assert summary["directory"] == up["run"]
        code, _, said = loadtest(tmp_path, "run", scenario)
        assert code == 2
        assert "has had its run" in json.loads(said)["message"]
    finally:
        code, down, _ = loadtest(tmp_path, "down", scenario, "--purge")
    assert (code, down["killed"]) == (0, [])
    code, status, _ = loadtest(tmp_path, "status", up["run"])
    assert (code, status["state"]) == (0, "down")
    assert not (tmp_path / "runs" / ".data" / Path(up["run"]).name).exists()


def test_two_interrupts_end_everything_in_peace(tmp_path: Path, scenario: Path) -> None:
    command = [str(CATENA), "loadtest", "run", str(scenario), "--results", str(tmp_path / "runs")]
    command += ["--set", "load.duration_s=600"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=clean_environment()) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.startswith(b"starting hammers"):
                break
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGINT)
        said = run.stderr.read().decode()
        assert run.wait(100) != 0
    assert "ending the stack" in said
    (directory,) = [path for path in (tmp_path / "runs").iterdir() if path.name != ".data"]
    state = json.loads((directory / "stack.json").read_text())
    assert state["state"] == "down"
    assert not any(is_running(Process(**node["process"])) for node in state["nodes"])


def test_a_wrong_scenario_is_wrong_usage(catena: Catena, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[stack]\nnodes = 0\n")
    ran = catena("loadtest", "run", tmp_path / "bad.toml", "--results", tmp_path / "runs", at=None)
    assert ran.code == 2
    assert "`stack.nodes`" in ran.err
    assert not (tmp_path / "runs").exists()


def test_two_runs_are_compared(catena: Catena, tmp_path: Path) -> None:
    for name, acked, nodes in (("a", 4.0, 1), ("b", 5.0, 2)):
        folder = tmp_path / name
        folder.mkdir()
        summary = {"run": name, "throughput": {"acked_mb_s": acked}, "processes": {}, "findings": []}
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / "resolved-config.json").write_text(json.dumps({"stack": {"nodes": nodes}}))
        (folder / "environment.json").write_text("{}")
    ran = catena("loadtest", "compare", tmp_path / "a", tmp_path / "b", at=None)
    assert ran.code == 0
    assert "+25.0%" in ran.out
    assert "stack.nodes" in ran.out
    found = catena("loadtest", "compare", tmp_path / "a", tmp_path / "b", "--json", at=None).json
    assert found["config"] == {"stack.nodes": [1, 2]}
    assert catena("loadtest", "compare", tmp_path / "a", tmp_path, at=None).code == 2


@pytest.mark.long
def test_what_a_killed_run_leaves_is_ended_by_down(tmp_path: Path, scenario: Path) -> None:
    command = [str(CATENA), "loadtest", "run", str(scenario), "--results", str(tmp_path / "runs")]
    with subprocess.Popen([*command, "--set", "load.duration_s=600"], stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.startswith(b"starting hammers"):
                break
        run.kill()
    code, up, _ = loadtest(tmp_path, "status", scenario)
    assert (code, up["state"]) == (0, "up")
    assert loadtest(tmp_path, "down", scenario)[0] == 0
    state = json.loads((Path(up["run"]) / "stack.json").read_text())
    assert state["state"] == "down"
    assert not any(is_running(Process(**node["process"])) for node in state["nodes"])
