"""The files that processes share their tails by: who may use them, and who clears away what dead ones leave."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from catena.errors import ConfigError
from catena.loglets.diskless.tail_folder import WRITE_BYTES, RingFile, TailFolder
from catena.runtime import SystemEntropy

DYING = """
import os, sys
from pathlib import Path
from catena.loglets.diskless.tail_folder import TailFolder
from catena.runtime import SystemEntropy
folder = TailFolder(Path(sys.argv[1]), SystemEntropy())
folder.create_ring(4096, lambda file: None)
folder.create_wake()
print("made", flush=True)
sys.stdin.read()
os._exit(1)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tails"


def open_folder(path: Path) -> TailFolder:
    return TailFolder(path, SystemEntropy())


def nothing(_file: RingFile) -> None:
    pass


def names(path: Path) -> list[str]:
    return sorted(each.suffix for each in path.iterdir())


def test_a_folder_is_made_for_its_user_alone(path: Path) -> None:
    folder = open_folder(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    ring = folder.create_ring(4096, nothing)
    wake, fd = folder.create_wake()
    assert [stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()] == [0o600, 0o600]
    ring.close()
    os.close(fd)
    assert wake.parent == path


def test_one_that_others_may_write_to_is_refused(path: Path) -> None:
    path.mkdir()
    for mode in (0o777, 0o720):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=r"tail_folder.*nobody else may write"):
            open_folder(path)


def test_one_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"tail_folder: .*file/tails"):
        open_folder(tmp_path / "file" / "tails")


def test_others_see_a_ring_once_it_is_ready(path: Path) -> None:
    writer, reader = open_folder(path), open_folder(path)

    def prepare(file: RingFile) -> None:
        assert reader.rings() == []
        file.write(0, [b"ready"])

    ring = writer.create_ring(4096, prepare)
    assert writer.rings() == []
    (name,) = reader.rings()
    seen = reader.open_ring(name)
    assert seen is not None
    assert seen.read(0, 5) == b"ready"
    assert not seen.is_abandoned()
    ring.write(0, [b"", b"more", memoryview(b"and more")])
    assert seen.read(0, 12) == b"moreand more"
    ring.close()
    assert seen.is_abandoned()
    assert reader.open_ring(name) is None
    seen.close()


def test_large_writes_arrive_whole(path: Path) -> None:
    folder = open_folder(path)
    ring = folder.create_ring(1 << 20, nothing)
    parts = [os.urandom(size) for size in (1, WRITE_BYTES, 100, WRITE_BYTES + 1, *[3] * 3000)]
    ring.write(77, parts)
    assert ring.read(77, sum(map(len, parts))) == b"".join(parts)
    ring.close()


def test_a_disk_that_is_full_is_found_out_before_there_is_a_ring(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _at: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = open_folder(path)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        folder.create_ring(4096, nothing)
    assert names(path) == []


def test_what_a_dead_process_left_is_cleared_away_and_nothing_else(path: Path) -> None:
    folder = open_folder(path)
    ring = folder.create_ring(4096, nothing)
    _, wake = folder.create_wake()
    process = subprocess.Popen(
        [sys.executable, "-c", DYING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin, process.stdout:
        assert process.stdout.readline() == "made\n"
        folder.sweep()
        assert names(path) == [".ring", ".ring", ".wake", ".wake"]
        (theirs,) = folder.rings()
        seen = folder.open_ring(theirs)
        assert seen is not None
        process.kill()
        process.wait()
    assert seen.is_abandoned()
    seen.close()
    (path / "x.ring.new").write_text("of one that died before its ring had a name")
    (path / "notes.txt").write_text("of somebody else")
    folder.sweep()
    assert names(path) == [".ring", ".txt", ".wake"]
    ring.delete()
    ring.close()
    os.close(wake)


def test_a_pipe_that_nobody_reads_is_deleted_by_who_would_wake_it(path: Path) -> None:
    folder = open_folder(path)
    wake, fd = folder.create_wake()
    writing = folder.open_wake(wake.name)
    assert writing is not None
    os.write(writing, b"\n")
    assert os.read(fd, 10) == b"\n"
    os.close(writing)
    os.close(fd)
    assert folder.open_wake(wake.name) is None
    assert folder.wakes() == []


def test_what_is_no_file_of_ours_is_not_read(path: Path, tmp_path: Path) -> None:
    folder = open_folder(path)
    (tmp_path / "elsewhere").write_text("x")
    (path / "a.ring").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(path / "b.ring")
    (path / "c.ring").mkdir()
    assert [folder.open_ring(name) for name in folder.rings()] == [None, None, None]


def test_what_is_swept_away_before_it_has_its_name_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can tell it from what a process left that died just there."""
    folder, other = open_folder(path), open_folder(path)
    real_lock, real_fifo = fcntl.flock, os.mkfifo
    swept: list[str] = []

    def lock(fd: int, how: int) -> None:
        if how & fcntl.LOCK_EX and "ring" not in swept:
            swept.append("ring")
            other.sweep()
        real_lock(fd, how)

    def fifo(name: Path, mode: int) -> None:
        real_fifo(name, mode)
        if "wake" not in swept:
            swept.append("wake")
            other.sweep()

    monkeypatch.setattr(fcntl, "flock", lock)
    monkeypatch.setattr(os, "mkfifo", fifo)
    ring = folder.create_ring(4096, nothing)
    _, fd = folder.create_wake()
    assert swept == ["ring", "wake"]
    assert names(path) == [".ring", ".wake"]
    assert (folder.rings(), other.rings()) == ([], [ring.name])
    ring.close()
    os.close(fd)
