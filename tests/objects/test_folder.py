"""The folder keeps the contract, between processes too, and names the errors of the file system."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catena.errors import CatenaError, StoreFull, StoreRefused, StoreUnavailable
from catena.objects.base import ObjectStore
from catena.objects.folder import FolderObjects
from catena.objects.folder_files import FolderFiles
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.testing.contracts.objects import ObjectStoreContract, list_keys
from catena.types import ABSENT, ANY
from tests.objects.folder_child import CHECKOUT, open_store
from tests.objects.syscalls import at, fail


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


class TestFolderObjects(ObjectStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path, disk: Disk) -> ObjectStore:
        return await open_store(tmp_path, disk)

    @pytest.fixture
    async def second_store(self, store: ObjectStore, tmp_path: Path, disk: Disk) -> ObjectStore:
        return await open_store(tmp_path, disk)


async def test_processes_that_compare_and_set_lose_no_update(tmp_path: Path, disk: Disk) -> None:
    store = await open_store(tmp_path, disk)
    await store.put("counter", [b"0"])
    command = [sys.executable, "-m", "tests.objects.folder_child", str(tmp_path), "count", "counter", "25"]
    children = [await asyncio.create_subprocess_exec(*command, cwd=CHECKOUT) for _ in range(2)]
    assert [await child.wait() for child in children] == [0, 0]
    assert (await store.get("counter")).data == b"100"


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a"), ("a", "a/b/c")])
@pytest.mark.parametrize("expect", [ABSENT, ANY])
async def test_a_key_cannot_go_on_where_another_ends(
    tmp_path: Path, disk: Disk, first: str, second: str, expect: Any
) -> None:
    store = await open_store(tmp_path, disk)
    await store.put(first, [b"1"])
    with pytest.raises(ValueError, match="cannot be the key"):
        await store.put(second, [b"2"], expect)
    assert await list_keys(store, "") == [first]


@pytest.mark.parametrize("path", ["file", "file/below"])
async def test_a_root_that_is_no_folder_is_refused(tmp_path: Path, disk: Disk, path: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreRefused, match="name a folder"):
        await open_store(tmp_path / path, disk)


async def test_a_new_root_is_made_with_all_above_it(tmp_path: Path, disk: Disk) -> None:
    store = await open_store(tmp_path / "not" / "there", disk)
    await store.put("a/b", [b"1"])
    assert (tmp_path / "not/there/a/b").read_bytes() == b"1"


async def test_a_limit_of_the_system_is_named_with_the_bytes_that_it_refused(tmp_path: Path, disk: Disk) -> None:
    store = await open_store(tmp_path, disk)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(StoreFull, match="2097152 bytes as a/b: File too large"):
            await store.put("a/b", [bytes(1 << 20), bytes(1 << 20)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert await list_keys(store, "") == []
    assert os.listdir(tmp_path / ".catena~" / "writing") == []


@pytest.mark.parametrize(
    "call", [os.open, os.writev, os.fdatasync, os.link, os.replace], ids=lambda call: call.__name__
)
@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EACCES, StoreRefused),
        (errno.EROFS, StoreRefused),
        (errno.ENOMEM, StoreUnavailable),
        (errno.EMFILE, StoreUnavailable),
    ],
)
async def test_a_put_that_fails_leaves_nothing(
    tmp_path: Path, disk: Disk, call: Callable[..., Any], number: int, error: type[CatenaError]
) -> None:
    store = await open_store(tmp_path, disk)
    await store.put("old", [b"first"])
    failing_disk = Disk()
    failing = FolderObjects(FolderFiles(tmp_path, SystemClock(), SystemEntropy()), failing_disk)
    put = failing.put("new", [b"second"], ABSENT) if call is os.link else failing.put("old", [b"second"])
    with at("before", call, fail(number)), pytest.raises(error, match="cannot put 6 bytes as"):
        await put
    failing_disk.close()
    assert await list_keys(store, "") == ["old"]
    assert (await store.get("old")).data == b"first"
    assert os.listdir(tmp_path / ".catena~" / "writing") == []
