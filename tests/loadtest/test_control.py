from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from catena.errors import ConfigError
from catena.loadtest.control import Control, check_hammers
from catena.loadtest.run_folder import STACK, RunFolder, StackState
from catena.loadtest.scenario import Scenario, parse_scenario
from catena.runtime import Disk, SystemClock, SystemNetwork
from tests.loadtest.conftest import SMALL, Watched


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    disk = Disk(1)
    yield Control(tmp_path / "results", SystemClock(), SystemNetwork(), disk, Watched())
    disk.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text('[[topics]]\nname = "small"\npartitions = 2\n')
    return file


def a_run(tmp_path: Path, state: str, scenario: Scenario = SMALL, has_run: bool = False) -> RunFolder:
    folder = RunFolder.create(tmp_path / "results", scenario, 0)
    folder.write(STACK, StackState(folder.name, scenario.name, state, has_run))
    return folder


def test_a_scenario_finds_the_stack_that_is_up(control: Control, file: Path, tmp_path: Path) -> None:
    assert control.new(file, []) == (None, SMALL)
    a_run(tmp_path, "down")
    assert control.new(file, [])[0] is None
    running = a_run(tmp_path, "up")
    found, _ = control.new(file, [])
    assert found is not None
    assert found.path == running.path
    with pytest.raises(ConfigError, match="is not what the stack"):
        control.new(file, ["seed=5"])
    assert control.new(running.path, [])[1] == SMALL


def test_a_run_directory_whose_stack_is_down_can_not_be_run(control: Control, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is down"):
        control.new(a_run(tmp_path, "down").path, [])


def test_a_stack_that_was_begun_and_not_finished_is_not_passed_over(
    control: Control, file: Path, tmp_path: Path
) -> None:
    """Whose command was killed: its processes may run."""
    begun = a_run(tmp_path, "starting")
    a_run(tmp_path, "down")
    for look in (lambda: control.new(file, []), lambda: control.find(file, is_up=True)):
        with pytest.raises(ConfigError, match=f"is starting, or .* was killed: `catena loadtest down {begun.path}`"):
            look()
    assert control.find(file).path == begun.path


def test_later_commands_find_the_newest_run(control: Control, file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run of small"):
        control.find(file)
    down = a_run(tmp_path, "down")
    assert control.find(file).path == down.path
    with pytest.raises(ConfigError, match="there is no run of small that is up"):
        control.find(file, is_up=True)
    with pytest.raises(ConfigError, match="is down; its scenario starts another one"):
        control.find(down.path, is_up=True)
    with pytest.raises(ConfigError, match="it is no run directory"):
        control.find(tmp_path)


async def test_a_directory_has_one_run(control: Control, tmp_path: Path) -> None:
    folder = a_run(tmp_path, "up", has_run=True)
    with pytest.raises(ConfigError, match="has had its run"):
        await control.run(folder, SMALL, False, False, lambda _run: None)


def test_missing_clients_are_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match="pip install"):
        check_hammers(SMALL)
    check_hammers(
        parse_scenario({"name": "x", "kafka": {"producers": 0, "consumers": 0}, "http": {"producers": 1}}, "x")
    )
