"""The temporary folder of a Spark driver: removed when the driver ends, and if it could not, by a later one.

A driver that is killed can't clean up. So each holds a lock on a file in its folder, of which the kernel lets go when
the process is gone, however that happens; and whoever makes a folder first removes those beside it that nobody holds.
What belongs to another user, is no folder or has no such file is left alone.

Whoever removes a folder holds its lock meanwhile, and whoever makes one looks, once it has the lock, whether the file
is still there. So a folder that is not locked yet is at worst removed before it is used, and another one is made.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from catena.errors import RetryLater

PREFIX = "catena-spark-"
LOCK = "driver-lives"
REMOVED_MAX = 16
"""Folders of dead drivers that one start removes: each may hold gigabytes."""
TRIES = 10


@contextmanager
def driver_folder() -> Iterator[Path]:
    """A new folder, this process's own for as long as the context lasts."""
    remove_left_behind(Path(tempfile.gettempdir()))
    folder, lock = _make()
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def remove_left_behind(parent: Path) -> list[Path]:
    """What drivers that are no more have left in `parent`; returns what was removed."""
    removed: list[Path] = []
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_ours(entry) and _remove_if_left(Path(entry.path)):
                removed.append(Path(entry.path))
                if len(removed) == REMOVED_MAX:
                    break
    return removed


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except OSError:
        return False  # somebody else has just removed it


def _remove_if_left(folder: Path) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
        return True
    except BlockingIOError:
        return False  # its driver lives, or somebody else removes it
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    # The lock's file goes last: what is left by who is killed meanwhile can still be told from other folders.
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != LOCK:
                Path(entry.path).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _make() -> tuple[Path, int]:
    for _ in range(TRIES):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(folder / LOCK)):
                return folder, lock
        os.close(lock)
    raise RetryLater(f"the folders that Spark's driver makes in {tempfile.gettempdir()} are removed by others at once")
