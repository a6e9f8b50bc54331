"""What is refused before anything starts, and what happens when something does not; the rest is in tests/cli."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from catena.errors import ConfigError, Contended, Corrupt, NeedsOperator
from catena.local_cluster import cluster
from catena.local_cluster.cluster import Ended, Started, down, find, up
from catena.local_cluster.plan import Plan
from catena.local_cluster.processes import Process, is_running, launch
from catena.local_cluster.state import Folder, LocalCluster, LocalNode
from catena.runtime import FileLock, SystemClock, SystemNetwork

GONE = Process(2**22 + 1, 1)


class Heard:
    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []
        self.lines: list[str] = []

    def state(self, name: str, state: str) -> None:
        self.states.append((name, state))

    def last_lines(self, name: str, lines: Sequence[str]) -> None:
        self.lines += [name, *lines]


async def start(data: Path, plan: Plan, heard: Heard | None = None) -> Started:
    return await up(data, plan, SystemClock(), SystemNetwork(), heard or Heard())


def saved(data: Path, kept: LocalCluster) -> Folder:
    folder = Folder(data)
    folder.make()
    folder.save(kept)
    return folder


@asynccontextmanager
async def listening(count: int) -> AsyncIterator[list[int]]:
    """Ports that somebody listens on."""
    listeners = [
        await SystemNetwork().listen("127.0.0.1", 0, lambda: pytest.fail("nobody connects")) for _ in range(count)
    ]
    try:
        yield [listener.port for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


async def test_one_command_at_a_time(tmp_path: Path) -> None:
    folder = saved(tmp_path, LocalCluster())
    with FileLock(folder.lock).hold():
        with pytest.raises(Contended, match="another `catena cluster` command"):
            await start(tmp_path, Plan(1))
        with pytest.raises(Contended):
            await down(tmp_path, SystemClock())


async def test_a_node_that_is_never_ready_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "START_MAX_S", 0.0)
    heard = Heard()
    with pytest.raises(NeedsOperator, match="node-0 is not ready after 0 s"):
        await start(tmp_path, Plan(2, base_port=0), heard)
    assert heard.states == [("node-0", "starting"), ("node-1", "starting"), ("node-0", "failed")]
    assert find(tmp_path) is None


async def test_a_node_says_itself_why_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "meta.db").write_bytes(b"what is this" * 1000)
    heard = Heard()
    with pytest.raises(Corrupt, match=r"^node-0 did not start: the meta store .*meta\.db is damaged"):
        await start(tmp_path, Plan(1, base_port=0), heard)
    assert heard.states == [("node-0", "starting"), ("node-0", "failed")]
    assert heard.lines == []
    assert find(tmp_path) is None


async def test_servers_that_do_not_start_end_it(tmp_path: Path) -> None:
    heard = Heard()
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "s3").touch()
    with pytest.raises(NeedsOperator, match=r"^servers did not start: .*s3"):
        await start(tmp_path, Plan(1, objects="s3"), heard)
    assert heard.states == [("servers", "starting"), ("servers", "failed")]
    assert heard.lines[0] == "servers"


async def test_ports_in_use_are_named_before_anything_starts(tmp_path: Path) -> None:
    heard = Heard()
    async with listening(1) as [port]:
        with pytest.raises(ConfigError) as refusal:
            await start(tmp_path, Plan(1, base_port=port), heard)
    assert str(refusal.value) == (
        f"port {port} (node-0) is in use: end what listens there, "
        "or choose others with --base-port N (0: any free ones)"
    )
    assert heard.states == []
    assert find(tmp_path) is None


async def test_ports_that_others_took_from_nodes_that_died_are_named(tmp_path: Path) -> None:
    async with listening(2) as [kafka, http]:
        nodes = [LocalNode(0, None, "", GONE, 0, http), LocalNode(1, None, "", GONE, kafka)]
        kept = LocalCluster(Plan(2), nodes)
        saved(tmp_path, kept)
        with pytest.raises(ConfigError) as refusal:
            await start(tmp_path, Plan())
    assert f"ports {kafka} (node-1), {http} (HTTP of node-0) are in use" in str(refusal.value)
    assert "choose others after `catena cluster down` with --base-port N" in str(refusal.value)
    assert find(tmp_path) == kept


async def test_an_address_that_can_not_be_is_left_to_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATENA_KAFKA__LISTENERS__MAIN__HOST", "no.such.host.invalid")
    with pytest.raises(
        ConfigError, match=r"^node-0 did not start: listener 'main' can't listen on no\.such\.host\.invalid"
    ):
        await start(tmp_path, Plan(1))


async def test_settings_that_can_not_be_are_named_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text("[http]\nport = 'x'\n")
    heard = Heard()
    with pytest.raises(ConfigError, match="port"):
        await start(tmp_path, Plan(1, config=str(tmp_path / "f.toml")), heard)
    assert heard.states == []
    assert find(tmp_path) is None


async def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, LocalCluster(Plan(2)))
    with pytest.raises(ConfigError, match=r"--nodes: the cluster in .* was started with 2"):
        await start(tmp_path, Plan(3))


async def test_what_ran_before_goes_on_when_another_one_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "meta.db").write_bytes(b"what is this" * 1000)
    command = ["/bin/sh", "-c", "read -r _ < fifo"]
    os.mkfifo(tmp_path / "fifo")
    runs = launch(command, os.environ, str(tmp_path), tmp_path / "out", tmp_path / "log", lambda _: None)
    nodes = [LocalNode(0, None, "", runs, 1, 2, "h:1", "h:2"), LocalNode(1, None, "", GONE)]
    saved(tmp_path, LocalCluster(Plan(2), nodes, directory=str(tmp_path)))
    heard = Heard()
    try:
        with pytest.raises(Corrupt, match=r"^node-1 did not start"):
            await start(tmp_path, Plan(), heard)
        assert heard.states == [("node-0", "running"), ("node-1", "starting"), ("node-1", "failed")]
        assert is_running(runs)
        kept = find(tmp_path)
        assert kept is not None
        assert [node.is_running for node in kept.nodes] == [True, False]
        assert await down(tmp_path, SystemClock()) == Ended([0], [1], [])
        assert not is_running(runs)
    finally:
        if is_running(runs):
            os.kill(runs.pid, signal.SIGKILL)


async def test_the_dead_are_not_counted_as_ended(tmp_path: Path) -> None:
    nodes = [LocalNode(0, None, "", GONE), LocalNode(1, None, "")]
    folder = saved(tmp_path, LocalCluster(Plan(2), nodes, GONE, [GONE]))
    folder.save_environment({})
    assert await down(tmp_path, SystemClock()) == Ended([], [0, 1], [])
    assert [path.name for path in folder.path.iterdir()] == ["lock"]


async def test_there_is_nothing_to_end(tmp_path: Path) -> None:
    assert await down(tmp_path, SystemClock()) is None
    assert not (tmp_path / "cluster").exists()
