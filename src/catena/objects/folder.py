"""Objects as plain files below a folder, shared by the processes of one host. A key is the path of its file.

`catena.objects.folder_files` does the work and tells the theory; here it is taken off the event loop (each call is one
job on a disk thread) and its OSErrors are named by what the caller must do.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from catena.errors import CatenaError, StoreFull, StoreRefused, StoreUnavailable
from catena.objects.base import Blob, ObjectInfo, Range, check_key
from catena.objects.folder_files import FolderFiles
from catena.runtime import Clock, Disk, Entropy
from catena.types import ANY, Buffer, Buffers, ETag, Expect

T = TypeVar("T")

LIST_PAGE = 1_000

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FOLDER = {errno.ENOTDIR, errno.EEXIST}


class FolderObjects:
    """Made by `open`. The disk belongs to the caller, and must outlive the store."""

    def __init__(self, files: FolderFiles, disk: Disk) -> None:
        self._files = files
        self._disk = disk

    @classmethod
    async def open(cls, root: Path, disk: Disk, clock: Clock, entropy: Entropy) -> Self:
        """Make the folder if need be, check that it can be used, and clear away what dead writers left."""
        store = cls(FolderFiles(root, clock, entropy), disk)
        await store._run("open it", store._files.prepare)
        return store

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        check_key(key)
        views = [memoryview(buffer).cast("B") for buffer in data if len(buffer)]
        doing = f"put {sum(map(len, views))} bytes as {key}"
        return await self._run(doing, lambda: self._files.put(key, views, expect))

    async def get(self, key: str) -> Blob:
        check_key(key)
        return await self._run(f"get {key}", lambda: self._files.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        check_key(key)
        if not any(length for _, length in ranges):
            return [b"" for _ in ranges]
        return await self._run(f"get ranges of {key}", lambda: self._files.get_ranges(key, ranges))

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return await self._run(f"head {key}", lambda: self._files.head(key))

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        found = self._files.list(prefix, after)
        while page := await self._run(f"list {prefix!r}", lambda: tuple(itertools.islice(found, LIST_PAGE))):
            for info in page:
                yield info

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        await self._run(f"delete {len(keys)} objects", lambda: self._files.delete(keys))

    async def close(self) -> None:
        """Nothing to give back: no file stays open between calls."""

    async def _run(self, doing: str, work: Callable[[], T]) -> T:
        try:
            return await self._disk.run(work)
        except OSError as error:
            raise self._nothing_applied(doing, error) from error

    def _nothing_applied(self, doing: str, error: OSError) -> CatenaError:
        failed = f"{self._files.root}: cannot {doing}: {error.strerror or error}"
        if error.errno in _NO_SPACE:
            return StoreFull(f"{failed}; free some space, raise the limit, or move the folder")
        if error.errno in _DENIED:
            return StoreRefused(f"{failed}; let this user write there, on a file system with hard links")
        if error.errno in _NO_FOLDER:
            return StoreRefused(f"{failed}; name a folder, or a place for a new one")
        return StoreUnavailable(failed)
