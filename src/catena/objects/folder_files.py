"""The blocking half of the folder store: how a file becomes an object, atomically and for good.

A put writes a file in a hidden folder, makes its bytes durable, gives it its name, and makes the name durable. So a
name only ever stands for a whole object, whatever dies when:

    create in .catena~/writing -> writev -> fdatasync -> link or rename to the key -> fsync of its folder -> return

- ABSENT publishes by `link`, which fails if the name exists: no lock is needed.
- ANY and etags publish by `rename`, and deletes `unlink`, all of them under one lock between processes, so that nothing
  changes between the comparison of the etag and the rename. A racing `link` can't disturb: it needs the name absent,
  and then the comparison has failed already. Bytes are not written and not made durable under the lock.
- **Etag** = inode, mtime in nanoseconds, size. A new file never has the inode of the file that it replaces, but it may
  have that of the one before; so its mtime is set by hand, greater than that of the file that it replaces.
- **Folders** are durable before the first object in them is. A process fsyncs the way from the root to a folder once,
  also if it did not make it: whoever did may not have come that far yet.
- **Leftovers.** A writer holds the kernel's lock on its unpublished file. Whoever opens the store deletes the files
  whose lock is free, since their writers are dead. A writer whose new file was taken for a leftover before it was
  locked notices, and takes another.
- **A failed fsync of a folder** leaves the kernel free to forget what it could not write and to answer the next fsync
  with success. So it is never tried again: the outcome of the call is unknown, and the store refuses all work from
  then on. A failed fdatasync needs no such care: that file is thrown away, and the next attempt writes another one.

An object is visible an instant before it is durable: a reader may see one whose put has not returned yet and which a
loss of power takes back. The folder must be on a local file system with hard links and nanosecond times.

OSError from here means that nothing was applied; all else is raised as one of Catena's errors.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from catena.errors import Conflict, Corrupt, ObjectMissing, OutcomeUnknown, StoreRefused
from catena.objects.base import Blob, ObjectInfo, Range
from catena.objects.folder_walk import walk
from catena.runtime import Clock, Entropy, FileLock
from catena.types import ABSENT, ANY, Buffer, ETag, Expect

HIDDEN = ".catena~"
"""Holds the lock and the unpublished files. No key collides with it, since `~` can't be in a key."""

MAX_KNOWN_FOLDERS = 100_000
MAX_CREATE_ATTEMPTS = 10
IOV_MAX = os.sysconf("SC_IOV_MAX")
WRITE_BYTES = 256 << 10
"""With one call. In a virtual machine calls of many megabytes were seen to take 2 s of CPU for a GB, and these 0.4."""


class FolderFiles:
    """Threads may share it."""

    def __init__(self, root: Path, clock: Clock, entropy: Entropy) -> None:
        self.root = root.absolute()
        self._clock = clock
        self._entropy = entropy
        self._writing = self._path(f"{HIDDEN}/writing")
        self._lock = FileLock(self._path(f"{HIDDEN}/lock"))
        self._durable_folders = {""}
        self._broken: str | None = None

    def prepare(self) -> None:
        """Make the folder if need be, check that it can be used, and clear away what dead writers left."""
        made = [folder for folder in (self.root, *self.root.parents) if not folder.exists()] or [self.root]
        os.makedirs(self._writing, exist_ok=True)
        for folder in made:
            parent = os.fspath(folder.parent)
            # The root may be there already, in a folder that this user may not open.
            with suppress(PermissionError), _opened(parent) as opened:
                self._sync(opened, parent)
        self._check_times()
        self._clear_leftovers()

    def put(self, key: str, views: Sequence[memoryview], expect: Expect | ETag) -> ETag:
        self._check_usable()
        # A conflict that can be seen already is spared the write. The comparison that counts comes later.
        _check(key, expect, self._find(key))
        file, unpublished = self._create_unpublished()
        try:
            _write_all(file, views)
            # Below the millisecond a random number: a name that is deleted and made again at once has another time.
            now_ns = self._clock.now_ms() * 1_000_000 + int(self._entropy.jitter() * 1_000_000)
            os.utime(file, ns=(now_ns, now_ns))
            os.fdatasync(file)
            folder = key.rpartition("/")[0]
            self._make_durable(folder)
            with _opened(self._path(folder)) as opened:  # this can't fail once the object is published
                self._publish(file, unpublished, key, expect)
                self._sync(opened, self._path(folder))
            return _etag(os.fstat(file))
        finally:
            with suppress(OSError):  # a rename took it; or it can't be removed, and the next open does that
                os.unlink(unpublished)
            os.close(file)

    def get(self, key: str) -> Blob:
        file, status = self._open_object(key)
        try:
            return Blob(_read(file, key, Range(0, status.st_size), status.st_size), _etag(status))
        finally:
            os.close(file)

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        file, status = self._open_object(key)
        try:
            return [_read(file, key, wanted, status.st_size) for wanted in ranges]
        finally:
            os.close(file)

    def head(self, key: str) -> ObjectInfo:
        self._check_usable()
        try:
            status = os.stat(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissing(key) from None
        if not stat.S_ISREG(status.st_mode):
            raise ObjectMissing(key)
        return _info(key, status)

    def delete(self, keys: Sequence[str]) -> None:
        self._check_usable()
        by_folder: dict[str, list[str]] = {}
        for key in keys:
            by_folder.setdefault(key.rpartition("/")[0], []).append(key)
        for folder, inside in by_folder.items():
            try:
                self._delete_inside(folder, inside)
            except PermissionError:
                raise
            except OSError as error:
                raise OutcomeUnknown(f"cannot delete all of {len(keys)} objects in {self.root}: {error}") from error

    def list(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        self._check_usable()
        return (_info(key, status) for key, status in walk(os.fspath(self.root), prefix, after, HIDDEN))

    def _path(self, key: str) -> str:
        return os.path.join(self.root, key)

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise StoreRefused(self._broken)

    def _check_times(self) -> None:
        odd_ns = 1_000_000_001
        file, path = self._create_unpublished()
        try:
            os.utime(file, ns=(odd_ns, odd_ns))
            kept_ns = os.fstat(file).st_mtime_ns
        finally:
            os.unlink(path)
            os.close(file)
        if kept_ns != odd_ns:
            raise StoreRefused(f"the file system of {self.root} keeps no nanosecond times: use a folder on another one")

    def _clear_leftovers(self) -> None:
        for name in os.listdir(self._writing):
            path = os.path.join(self._writing, name)
            with suppress(FileNotFoundError):  # published, or cleared by somebody else
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    if _try_lock(file):
                        os.unlink(path)
                finally:
                    os.close(file)

    def _create_unpublished(self) -> tuple[int, str]:
        for _ in range(MAX_CREATE_ATTEMPTS):
            path = os.path.join(self._writing, self._entropy.hex_id())
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            if _try_lock(file) and os.fstat(file).st_nlink:
                return file, path
            os.close(file)
        raise OSError(errno.EAGAIN, f"{MAX_CREATE_ATTEMPTS} new files in {self._writing} were taken for leftovers")

    def _publish(self, file: int, unpublished: str, key: str, expect: Expect | ETag) -> None:
        try:
            if expect is ABSENT:
                os.link(unpublished, self._path(key))
            else:
                self._replace(file, unpublished, key, expect)
        except FileExistsError:
            raise Conflict(key) from None
        except OSError as error:
            if error.errno == errno.EIO:
                raise OutcomeUnknown(f"the disk failed while {key} got its name in {self.root}: {error}") from error
            raise

    def _replace(self, file: int, unpublished: str, key: str, expect: Expect | ETag) -> None:
        with self._lock.hold():
            found = self._find(key)
            _check(key, expect, found)
            if found is not None and found.st_mtime_ns >= os.fstat(file).st_mtime_ns:
                os.utime(file, ns=(found.st_mtime_ns + 1, found.st_mtime_ns + 1))
            os.replace(unpublished, self._path(key))

    def _delete_inside(self, folder: str, keys: Sequence[str]) -> None:
        if not os.path.isdir(self._path(folder)):
            return
        with _opened(self._path(folder)) as opened:
            for key in keys:
                with self._lock.hold(), suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(self._path(key))
            self._sync(opened, self._path(folder))

    def _make_durable(self, folder: str) -> None:
        known = folder in self._durable_folders
        if known and os.path.isdir(self._path(folder)):
            return
        if known or len(self._durable_folders) >= MAX_KNOWN_FOLDERS:
            self._durable_folders = {""}
        parent = ""
        for part in folder.split("/"):
            child = f"{parent}/{part}" if parent else part
            if child not in self._durable_folders:
                with suppress(FileExistsError):
                    os.mkdir(self._path(child))
                with _opened(self._path(parent)) as opened:
                    self._sync(opened, self._path(parent))
                self._durable_folders.add(child)
            parent = child

    def _sync(self, folder: int, path: str) -> None:
        try:
            os.fsync(folder)
        except OSError as error:
            self._broken = (
                f"fsync of {path} failed ({error.strerror}), what it holds may be lost: check the disk, restart"
            )
            raise OutcomeUnknown(self._broken) from error

    def _find(self, key: str) -> os.stat_result | None:
        try:
            status = os.stat(self._path(key))
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise ValueError(f"{key!r} cannot be the key of an object, because a part of it is one") from None
        if stat.S_ISDIR(status.st_mode):
            raise ValueError(f"{key!r} cannot be the key of an object, because other keys begin with it")
        return status

    def _open_object(self, key: str) -> tuple[int, os.stat_result]:
        self._check_usable()
        try:
            file = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissing(key) from None
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            os.close(file)
            raise ObjectMissing(key)
        return file, status


def _etag(status: os.stat_result) -> ETag:
    return ETag(f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}")


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _etag(status), status.st_mtime_ns // 1_000_000)


def _check(key: str, expect: Expect | ETag, found: os.stat_result | None) -> None:
    if expect is not ANY and (None if expect is ABSENT else expect) != (found and _etag(found)):
        raise Conflict(key)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)


def _write_all(file: int, views: Sequence[memoryview]) -> None:
    """Write the bytes of all views, none of them empty, without joining them."""
    first = 0
    rest = 0  # bytes of the first view that are written already
    while first < len(views):
        rest += os.writev(file, _next_write(views, first, rest))
        while first < len(views) and rest >= len(views[first]):
            rest -= len(views[first])
            first += 1


def _next_write(views: Sequence[memoryview], first: int, rest: int) -> list[memoryview]:
    pieces = [views[first][rest : rest + WRITE_BYTES]]
    size = len(pieces[0])
    for number in range(first + 1, min(len(views), first + IOV_MAX)):
        if size == WRITE_BYTES:
            break
        pieces.append(views[number][: WRITE_BYTES - size])
        size += len(pieces[-1])
    return pieces


def _read(file: int, key: str, wanted: Range, size: int) -> bytes:
    start, length = wanted
    if length and start + length > size:
        raise Corrupt(f"object {key} has {size} bytes; bytes {start} to {start + length} were asked for")
    data = os.pread(file, length, start)
    while len(data) < length:  # the kernel reads 2 GiB at most at a time
        more = os.pread(file, length - len(data), start + len(data))
        if not more:
            raise Corrupt(f"object {key} shrank from {size} to {start + len(data)} bytes: its file was changed")
        data += more
    return data
