from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catena.errors import ConfigError, Corrupt
from catena.loadtest.run_folder import CONFIG, STACK, RunFolder, StackNode, StackState, find_run
from catena.loadtest.scenario import Scenario
from catena.local_cluster.processes import Process

NOW_MS = 1_700_000_000_000


def create(results: Path, name: str = "smoke", now_ms: int = NOW_MS) -> RunFolder:
    return RunFolder.create(results, Scenario(name), now_ms)


def test_a_run_directory_is_named_by_time_and_scenario(tmp_path: Path) -> None:
    folder = create(tmp_path / "results")
    assert folder.name == "20231114T221320Z-smoke"
    assert folder.scenario() == Scenario("smoke")
    assert folder.stack() == StackState(folder.name, "smoke")
    assert folder.data == tmp_path / "results" / ".data" / folder.name
    assert folder.ledgers.is_dir()
    assert folder.logs.is_dir()


def test_two_of_the_same_second_keep_apart(tmp_path: Path) -> None:
    assert create(tmp_path).name != create(tmp_path).name


def test_what_is_written_is_found_again(tmp_path: Path) -> None:
    folder = create(tmp_path)
    state = StackState("r", "s", "up", nodes=[StackNode("node-0", 0, "a:1", "a:2", Process(5, 6))])
    folder.write(STACK, state)
    assert RunFolder(folder.path).stack() == state
    assert not list(folder.path.glob(".*.new"))


def test_lines_are_read_up_to_one_that_is_torn(tmp_path: Path) -> None:
    folder = create(tmp_path)
    folder.append("lines.jsonl", {"a": 1}, {"a": 2})
    folder.append("lines.jsonl", {"a": 3})
    with (folder.path / "lines.jsonl").open("ab") as file:
        file.write(b'{"a": 4')
    assert [line["a"] for line in folder.lines("lines.jsonl", dict[str, Any])] == [1, 2, 3]
    assert list(folder.lines("none.jsonl", dict[str, Any])) == []


def test_what_is_not_there_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no stack\.json: it is no run directory"):
        RunFolder(tmp_path).stack()
    (tmp_path / "scenario.toml").touch()
    with pytest.raises(ConfigError, match=r"scenario\.toml has no stack\.json: it is no run directory"):
        RunFolder(tmp_path / "scenario.toml").stack()
    folder = create(tmp_path)
    (folder.path / CONFIG).write_text("{")
    with pytest.raises(Corrupt, match=r"resolved-config\.json can't be read"):
        folder.scenario()


def test_the_newest_run_of_a_scenario_is_found(tmp_path: Path) -> None:
    old, new = create(tmp_path, now_ms=NOW_MS), create(tmp_path, now_ms=NOW_MS + 60_000)
    create(tmp_path, "smoke-2", NOW_MS + 120_000)
    assert find_run(tmp_path, "none", is_up=False) is None
    found = find_run(tmp_path, "smoke", is_up=False)
    assert found is not None
    assert found.path == new.path
    for folder in (old, new):
        folder.write(STACK, StackState(folder.name, "smoke", "down"))
    assert find_run(tmp_path, "smoke", is_up=True) is None
    for state in ("up", "starting"):  # of one whose command was killed processes may run as well
        old.write(STACK, StackState(old.name, "smoke", state))
        running = find_run(tmp_path, "smoke", is_up=True)
        assert running is not None
        assert running.path == old.path


def test_logs_are_kept_and_data_can_go(tmp_path: Path) -> None:
    folder = create(tmp_path)
    (folder.data / "node.log").write_text("words")
    folder.keep_log(folder.data / "node.log", "node.log")
    folder.keep_log(folder.data / "none.log", "none.log")
    folder.purge()
    assert not folder.data.exists()
    assert [path.name for path in folder.logs.iterdir()] == ["node.log"]
