"""Another process on a folder of objects: dies at a system call of a put, or counts.

python -m tests.objects.folder_child ROOT crash KEY EXPECT WHEN CALL
python -m tests.objects.folder_child ROOT count KEY TIMES
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from catena.objects.folder import FolderObjects
from catena.objects.folder_files import FolderFiles
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.testing.contracts.objects import increment
from catena.types import ETag, Expect
from tests.objects.syscalls import When, at

CHECKOUT = Path(__file__).resolve().parents[2]

NEW = [b"%08d" % number for number in range(2_500)]
"""More buffers than one writev takes, so that a crash after the first leaves a torn file."""


async def open_store(root: Path, disk: Disk) -> FolderObjects:
    return await FolderObjects.open(root, disk, SystemClock(), SystemEntropy())


async def crash(root: Path, key: str, expect: str, when: When, call: str) -> None:
    # Not opened: that would do system calls of its own, and the test has opened the folder already.
    store = FolderObjects(FolderFiles(root, SystemClock(), SystemEntropy()), Disk(threads=1))
    condition = Expect(expect) if expect in ("any", "absent") else ETag(expect)
    with at(when, getattr(os, call), lambda: os.kill(os.getpid(), signal.SIGKILL)):
        await store.put(key, NEW, condition)


async def count(root: Path, key: str, times: int) -> None:
    disk = Disk()
    store = await open_store(root, disk)
    await asyncio.gather(*(increment(store, key, times) for _ in range(2)))
    disk.close()


if __name__ == "__main__":
    root, job, key, *rest = sys.argv[1:]
    if job == "crash":
        expect, when, call = rest
        asyncio.run(crash(Path(root), key, expect, "before" if when == "before" else "after", call))
    else:
        asyncio.run(count(Path(root), key, int(rest[0])))
