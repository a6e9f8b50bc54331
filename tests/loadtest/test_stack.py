from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from catena.errors import ConfigError, NeedsOperator
from catena.loadtest.run_folder import STACK, Beside, RunFolder, StackState
from catena.loadtest.scenario import Scenario, parse_scenario
from catena.loadtest.scenario import Stack as ScenarioStack
from catena.loadtest.stack import Stack, check_same, settings_file
from catena.local_cluster.processes import Process, is_running
from catena.runtime import SystemClock, SystemNetwork, Tasks
from tests.loadtest.conftest import SMALL, Watched


def new_stack(tmp_path: Path, scenario: Scenario = SMALL) -> Stack:
    return Stack(RunFolder.create(tmp_path, scenario, 0), SystemClock(), SystemNetwork())


def new_stack_of(stack: Stack) -> Stack:
    """As another command has it."""
    return Stack(RunFolder(stack.folder.path), SystemClock(), SystemNetwork())


async def wait_for(stack: Stack, name: str, state: str) -> None:
    for _ in range(500):
        if (await stack.states())[name] == state:
            return
        await SystemClock().sleep(0.02)
    pytest.fail(f"{name} did not become {state}")


async def test_from_up_to_down(tmp_path: Path) -> None:
    two = msgspec.structs.replace(SMALL, stack=ScenarioStack(nodes=2))
    stack = new_stack(tmp_path, two)
    watched = Watched()
    state = await stack.up(two, watched)
    other, node = state.nodes
    assert state.state == "up"
    assert {("node-0", "ready"), ("node-1", "ready")} <= set(watched.states)
    assert node.process is not None
    assert other.process is not None
    assert stack.roots() == {"node-0": other.process.pid, "node-1": node.process.pid}
    assert await stack.states() == {"node-0": "ready", "node-1": "ready"}

    for name in ("node-0", "node-1"):
        assert stack.signal(name, signal.SIGKILL)
        await wait_for(stack, name, "dead")
        assert not stack.signal(name, signal.SIGKILL)
    assert stack.roots() == {}
    await stack.restart("node-1", watched)
    # Who died by itself stays dead, or nobody would hear of it.
    assert await stack.states() == {"node-0": "dead", "node-1": "ready"}
    again = stack.state.nodes[1]
    assert again.process != node.process
    assert (again.kafka, again.http) == (node.kafka, node.http)

    assert stack.signal("node-1", signal.SIGSTOP)
    assert await stack.down() == []
    assert stack.state.state == "down"
    assert again.process is not None
    assert not is_running(again.process)
    assert {"node-1.log", "node-1.log.old"} <= {path.name for path in stack.folder.logs.iterdir()}
    assert await stack.states() == {"node-0": "dead", "node-1": "dead"}
    with pytest.raises(ConfigError, match="does not run"):
        stack.environment()


async def test_a_recycled_process_id_is_never_signalled(tmp_path: Path) -> None:
    """The ids of our own process, with another start: what `down` finds if it comes late."""
    stack = new_stack(tmp_path)
    ours = Process(os.getpid(), 1)
    stack.folder.write(STACK, StackState("r", "small", "up", pipeline=Beside(ours), prometheus=Beside(ours)))
    assert not stack.signal("pipeline", signal.SIGKILL)
    assert stack.roots() == {}
    assert await stack.down() == []


async def test_what_does_not_start_leaves_nothing_behind(tmp_path: Path) -> None:
    settings = {"http.host": "203.0.113.1"}  # of another machine
    scenario = parse_scenario({"name": "bad", "purge": True, "stack": {"settings": settings}}, "bad")
    stack = new_stack(tmp_path, scenario)
    with pytest.raises(ConfigError, match=r"203\.0\.113\.1"):
        await stack.up(scenario, Watched())
    assert stack.state.state == "down"
    assert stack.roots() == {}
    assert not stack.folder.data.exists()


async def test_a_command_that_fails_says_why(stack: Stack) -> None:
    with pytest.raises(NeedsOperator, match=r"topic describe none failed: .*none"):
        await stack.command("topic", "describe", "none")
    assert stack.state.commands == []


async def test_a_command_is_known_before_it_begins_and_down_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if who started it had been killed: nobody is left but `down`."""
    monkeypatch.setattr("catena.loadtest.stack.CATENA", (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(Stack, "environment", lambda _stack: {})
    stack = new_stack(tmp_path)
    tasks = Tasks("test")
    task = tasks.spawn("audit", stack.command())
    while not (commands := stack.state.commands) and not task.done():
        await SystemClock().sleep(0.01)
    assert [is_running(command) for command in commands] == [True]
    await new_stack_of(stack).down()
    assert [is_running(command) for command in commands] == [False]
    assert stack.state.commands == []
    with pytest.raises(NeedsOperator, match="failed: it said nothing"):
        await task


async def test_a_full_disk_keeps_nothing_from_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stack = new_stack(tmp_path)
    (stack.folder.data / "pipeline.log").write_text("words")
    monkeypatch.setattr(RunFolder, "keep_log", full)
    with pytest.raises(OSError, match="No space"):
        await stack.down(purge=True)
    assert not stack.folder.data.exists()
    assert stack.state.state == "down"


def test_settings_are_toml(tmp_path: Path) -> None:
    settings = {"diskless.writer.batch_max_delay_ms": 100, "kafka.topics.auto_create": False, "node.rack": 'a"b'}
    scenario = parse_scenario({"name": "x", "stack": {"settings": settings}}, "x")
    text = settings_file(scenario)
    import tomllib

    assert tomllib.loads(text) == {
        "metrics": {"scenario": "x"},
        "diskless": {"writer": {"batch_max_delay_ms": 100}},
        "kafka": {"topics": {"auto_create": False}},
        "node": {"rack": 'a"b'},
    }


def test_another_scenario_is_not_run_on_this_stack(tmp_path: Path) -> None:
    stack = new_stack(tmp_path)
    check_same(stack.folder, SMALL)
    with pytest.raises(ConfigError, match=r"is not what the stack in .* was started with"):
        check_same(stack.folder, msgspec.structs.replace(SMALL, seed=2))
