"""What is written down of a cluster is found again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from catena.errors import Corrupt
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
    cluster = LocalCluster([LocalNode(0, "a", GONE, "log", "h:1"), LocalNode(1, None, GONE, "log", "h:2")], GONE)
    folder.save(cluster)
    assert folder.load() == cluster
    assert (folder.path / "state.json").stat().st_mode & 0o077 == 0
    assert cluster.bootstrap_servers == "h:1,h:2"
    assert cluster.processes == [GONE] * 3
    folder.forget()
    folder.forget()
    assert folder.load() is None


def test_runs_as_long_as_one_process_does(folder: Folder) -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    ourselves = Process(os.getpid(), int(fields[19]))
    assert LocalCluster([LocalNode(0, None, GONE, "")], ourselves).is_running
    assert not LocalCluster([LocalNode(0, None, GONE, "")], GONE).is_running


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
