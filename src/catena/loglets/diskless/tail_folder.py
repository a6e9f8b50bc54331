"""The folder in which processes of one host share what they have just committed: rings, and pipes that wake readers.

| file | who makes it | what it is |
|---|---|---|
| `{pid}-{random}.ring` | a process that commits | its newest batches, see `tail_ring` |
| `{pid}-{random}.wake` | a process that reads | a pipe (FIFO); a byte in it says that some ring has news |
| `*.new` | either | one of these before it gets its name |

Whoever makes a ring holds the kernel's lock on it, so a process that dies, however it does, gives it up: a ring whose
lock is free is abandoned, and anyone may delete it. A pipe that nobody has open for reading is abandoned as well. Both
get their names when they are locked or opened, so what has a name and is abandoned never comes to life. What has none
yet may be taken for abandoned, and deleted, before it is locked or opened: then it is made again.

The space of a ring is reserved when it is made: a disk that is full is found out then, and not in the middle.

Whoever can write into the folder can tell readers anything: it has to belong to the user of the nodes, and to nobody
else. Files are 0600.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from catena.errors import ConfigError
from catena.loglets.diskless.tail_ring import RING_AT
from catena.runtime import Entropy
from catena.types import Buffers

RING = ".ring"
WAKE = ".wake"
NEW = ".new"
MAX_RINGS = 64
"""Of processes that live. One more gets none, and its readers go to the stores."""
MAX_FILES = 1024
"""That are looked at."""
WRITE_BYTES = 256 << 10
"""With one call: see `objects.folder_files`, where it was measured."""
IOV_MAX = os.sysconf("SC_IOV_MAX")
TRIES = 3

T = TypeVar("T")


class RingFile:
    """An open ring, as `tail_ring.Storage`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.name = path.name
        self._path = path
        self._fd = fd

    def read(self, at: int, length: int) -> bytes:
        return os.pread(self._fd, length, at)

    def write(self, at: int, data: Buffers) -> None:
        for some in _calls(data):
            written = os.pwritev(self._fd, some, at)
            if written != sum(map(len, some)):
                raise OSError(errno.EIO, "only a part was written", str(self._path))
            at += written

    def is_abandoned(self) -> bool:
        """Whether its writer is gone. For readers."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return True

    def close(self) -> None:
        os.close(self._fd)

    def delete(self) -> None:
        with suppress(OSError):
            self._path.unlink()


class TailFolder:
    def __init__(self, path: Path, entropy: Entropy) -> None:
        """Makes the folder if need be. Raises ConfigError if it can't be used."""
        self._path = path.absolute()
        self._entropy = entropy
        self._own: dict[str, None] = {}
        try:
            os.makedirs(self._path, mode=0o700, exist_ok=True)
            status = os.stat(self._path)
        except OSError as error:
            raise ConfigError(f"setting diskless.tail_folder: {path}: {error.strerror}") from None
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"setting diskless.tail_folder: {path} has to belong to the user that the node runs as, "
                "and nobody else may write to it"
            )

    def create_ring(self, size: int, prepare: Callable[[RingFile], None]) -> RingFile:
        """A ring that others find once `prepare` has written what it begins with. OSError: there is none."""
        return _again_if_swept(lambda: self._create_ring(size, prepare))

    def _create_ring(self, size: int, prepare: Callable[[RingFile], None]) -> RingFile:
        name = self._new_name(RING)
        path, new = self._path / name, self._path / (name + NEW)
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(fd, 0, RING_AT + size)
            prepare(RingFile(new, fd))
            self._own[name] = None
            os.rename(new, path)
        except BaseException:
            self._own.pop(name, None)
            os.close(fd)
            with suppress(OSError):
                new.unlink()
            raise
        return RingFile(path, fd)

    def rings(self) -> list[str]:
        """Names of those that others have made."""
        return [name for name in self._names(RING) if name not in self._own]

    def open_ring(self, name: str) -> RingFile | None:
        """To read; None if its writer is gone, or it is not ours to read."""
        path = self._path / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        status = os.fstat(fd)
        file = RingFile(path, fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or file.is_abandoned():
            file.close()
            return None
        return file

    def create_wake(self) -> tuple[Path, int]:
        """A pipe to wait on, and its path. It is open for writing as well, so that it never ends."""
        return _again_if_swept(self._create_wake)

    def _create_wake(self) -> tuple[Path, int]:
        name = self._new_name(WAKE)
        path, new = self._path / name, self._path / (name + NEW)
        os.mkfifo(new, 0o600)
        fd = os.open(new, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.rename(new, path)
        except BaseException:
            os.close(fd)
            raise
        return path, fd

    def wakes(self) -> list[str]:
        return self._names(WAKE)

    def open_wake(self, name: str) -> int | None:
        """To write to; None if nobody reads it any more."""
        path = self._path / name
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno == errno.ENXIO:
                with suppress(OSError):
                    path.unlink()
            return None

    def sweep(self) -> None:
        """Delete what processes that are gone have left."""
        for name in self._names(RING, NEW, WAKE):
            path = self._path / name
            with suppress(OSError):
                mode = os.lstat(path).st_mode
                if stat.S_ISFIFO(mode):
                    if (fd := self.open_wake(name)) is not None:
                        os.close(fd)
                elif stat.S_ISREG(mode) and (file := self._open_any(path)) is not None:
                    if file.is_abandoned():
                        file.delete()
                    file.close()

    def _open_any(self, path: Path) -> RingFile | None:
        try:
            return RingFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
        except OSError:
            return None

    def _names(self, *endings: str) -> list[str]:
        try:
            with os.scandir(self._path) as entries:
                names = [entry.name for _, entry in zip(range(MAX_FILES), entries, strict=False)]
        except OSError:
            return []
        return sorted(name for name in names if name.endswith(endings))

    def _new_name(self, ending: str) -> str:
        return f"{os.getpid()}-{self._entropy.hex_id()}{ending}"


def _again_if_swept(make: Callable[[], T]) -> T:
    for _ in range(TRIES - 1):
        with suppress(FileNotFoundError, BlockingIOError):
            return make()
    return make()


def _calls(data: Buffers) -> Iterator[list[memoryview]]:
    some: list[memoryview] = []
    left = WRITE_BYTES
    for buffer in data:
        view = memoryview(buffer)
        while len(view):
            some.append(view[:left])
            left -= len(some[-1])
            view = view[len(some[-1]) :]
            if not left or len(some) == IOV_MAX:
                yield some
                some, left = [], WRITE_BYTES
    if some:
        yield some
