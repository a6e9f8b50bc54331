from __future__ import annotations

from pathlib import Path

import pytest

from catena.errors import ConfigError
from catena.loadtest.observe import configuration, find_prometheus, observe
from catena.loadtest.run_folder import RunFolder
from catena.loadtest.stack import Stack
from catena.local_cluster.processes import is_running
from catena.runtime import SystemClock, SystemNetwork
from tests.conftest import cannot_have
from tests.loadtest.conftest import SMALL, Watched


def test_where_there_is_none_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no `prometheus` in PATH, nor in \.dev"):
        find_prometheus()


def test_it_is_found_in_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    binary = tmp_path / ".dev" / "prometheus" / "usr" / "bin" / "prometheus"
    binary.parent.mkdir(parents=True)
    binary.touch()
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    assert find_prometheus() == str(binary)


def test_nodes_and_pipeline_are_jobs_of_their_own() -> None:
    found = configuration("run-1", ["a:1", "b:2"], ["c:3"])
    assert [(job["job_name"], job["static_configs"][0]) for job in found["scrape_configs"]] == [
        ("catena", {"targets": ["a:1", "b:2"], "labels": {"run": "run-1"}}),
        ("catena-pipeline", {"targets": ["c:3"], "labels": {"run": "run-1"}}),
    ]
    assert len(configuration("run-1", ["a:1"], [])["scrape_configs"]) == 1


@pytest.mark.long
async def test_a_real_one_sees_the_node_and_ends_with_the_stack(tmp_path: Path) -> None:
    try:
        find_prometheus()
    except ConfigError as error:
        cannot_have("prometheus", str(error))
    watched = Watched()
    stack = Stack(RunFolder.create(tmp_path, SMALL, 0), SystemClock(), SystemNetwork())
    await stack.up(SMALL, watched)
    try:
        address = await observe(stack, SystemClock(), watched)
        assert ("prometheus", "ready") in watched.states
        beside = stack.state.prometheus
        assert beside is not None
        assert beside.http == address
        assert stack.roots()["prometheus"] == beside.process.pid
    finally:
        await stack.down()
    assert not is_running(beside.process)
