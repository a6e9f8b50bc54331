"""One command at a time, and a node that hangs is not waited for for ever; the rest is in tests/cli/test_cluster.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from catena.errors import Contended, NeedsOperator
from catena.local_cluster import cluster
from catena.local_cluster.cluster import Plan, down, find, up
from catena.local_cluster.state import Folder, LocalCluster
from catena.runtime import FileLock, SystemClock


class Heard:
    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []
        self.lines: list[str] = []

    def state(self, name: str, state: str) -> None:
        self.states.append((name, state))

    def last_lines(self, name: str, lines: Sequence[str]) -> None:
        self.lines += [name, *lines]


async def test_one_command_at_a_time(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.make()
    folder.save(LocalCluster())
    with FileLock(folder.lock).hold():
        with pytest.raises(Contended, match="another `catena cluster` command"):
            await up(tmp_path, Plan(1), SystemClock(), Heard())
        with pytest.raises(Contended):
            await down(tmp_path, SystemClock())


async def test_a_node_that_is_never_ready_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "START_MAX_S", 0.0)
    heard = Heard()
    with pytest.raises(NeedsOperator, match="node-0 is not ready after 0 s"):
        await up(tmp_path, Plan(2, base_port=0), SystemClock(), heard)
    assert heard.states == [("node-0", "starting"), ("node-1", "starting"), ("node-0", "failed")]
    assert find(tmp_path) is None


async def test_servers_that_are_not_known_end_it(tmp_path: Path) -> None:
    heard = Heard()
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "s3").touch()
    with pytest.raises(NeedsOperator, match="servers ended while it started"):
        await up(tmp_path, Plan(1, servers=("s3",)), SystemClock(), heard)
    assert heard.states == [("servers", "starting"), ("servers", "failed")]
    assert heard.lines[0] == "servers"
    assert len(heard.lines) > 1


async def test_there_is_nothing_to_end(tmp_path: Path) -> None:
    assert await down(tmp_path, SystemClock()) is None
    assert not (tmp_path / "cluster").exists()
