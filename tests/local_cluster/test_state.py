"""What is written down of a cluster is found again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from catena.errors import Corrupt
from catena.local_cluster.plan import Plan
from catena.local_cluster.processes import Process
from catena.local_cluster.state import Folder, LocalCluster, LocalNode

GONE = Process(2**22 + 1, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "data")
    folder.make()
    return folder


def test_is_found_again_and_forgotten(folder: Folder) -> None:
    assert folder.load() is None
    one, two = Process(1, 1), Process(2, 2)
    nodes = [
        LocalNode(0, "a", "log", one, 1, 3, "h:1", "h:3"),
        LocalNode(1, None, "log", two, kafka="h:2"),
        LocalNode(2, None, "log"),
    ]
    plan = Plan(3, ("a", "b"), 0, "postgres", "s3", "file")
    cluster = LocalCluster(plan, nodes, GONE, [GONE], {"A": "1"}, {"CATENA_B": "2"}, "here")
    folder.save(cluster)
    folder.out("node-0").touch()
    folder.log("node-0").touch()
    assert folder.load() == cluster
    assert (folder.path / "state.json").stat().st_mode & 0o077 == 0
    assert cluster.bootstrap_servers == "h:1,h:2"
    assert cluster.processes == [one, two, GONE, GONE]
    folder.forget()
    folder.forget()
    assert folder.load() is None
    assert [path.name for path in folder.path.iterdir()] == ["node-0.log"]


def test_a_node_runs_as_long_as_its_process_does() -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert LocalNode(0, None, "", Process(os.getpid(), int(fields[19]))).is_running
    assert not LocalNode(0, None, "", GONE).is_running
    assert not LocalNode(0, None, "").is_running


def test_the_last_log_is_set_aside(folder: Folder) -> None:
    folder.set_log_aside("node-0")
    for said in ("first", "second"):
        folder.log("node-0").write_text(said)
        folder.set_log_aside("node-0")
    assert [path.name for path in folder.path.iterdir()] == ["node-0.log.old"]
    assert (folder.path / "node-0.log.old").read_text() == "second"


def test_damage_is_named(folder: Folder) -> None:
    (folder.path / "state.json").write_bytes(b'{"nodes": 1}')
    with pytest.raises(Corrupt, match=r"state\.json can't be read: .*nodes"):
        folder.load()


def test_the_environment_can_be_read_by_a_shell(folder: Folder) -> None:
    evil = "a b'; echo $HOME \n&"
    folder.save_environment({"CATENA_META": evil})
    shown = subprocess.run(
        ["/bin/sh", "-c", f'. "{folder.environment}"; printf %s "$CATENA_META"'],
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == evil
    assert folder.environment.stat().st_mode & 0o077 == 0
