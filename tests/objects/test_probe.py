"""Stores that lie are refused; all of ours pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from catena.errors import StoreRefused, StoreUnavailable
from catena.objects.base import Blob, ObjectInfo, ObjectStore
from catena.objects.folder import FolderObjects
from catena.objects.memory import MemoryObjects
from catena.objects.probe import probe
from catena.objects.s3 import S3Objects
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.testing.contracts.objects import list_keys
from catena.testing.s3_server import SeaweedServer
from catena.types import ABSENT, ANY, Buffers, ETag, Expect


async def passes_and_leaves_nothing(store: ObjectStore) -> None:
    await probe(store, SystemEntropy())
    assert await list_keys(store, "") == []


async def test_memory_passes() -> None:
    await passes_and_leaves_nothing(MemoryObjects(SystemClock()))


async def test_a_folder_passes(tmp_path: Path) -> None:
    disk = Disk()
    await passes_and_leaves_nothing(await FolderObjects.open(tmp_path, disk, SystemClock(), SystemEntropy()))
    disk.close()


async def test_s3_passes(s3_server: SeaweedServer) -> None:
    await passes_and_leaves_nothing(S3Objects(s3_server.settings("probed")))


async def test_s3_that_lists_in_another_order_than_configured_is_refused(s3_server: SeaweedServer) -> None:
    store = S3Objects(replace(s3_server.settings("probed"), lists_as_tree=False))
    with pytest.raises(StoreRefused, match="set lists_as_tree"):
        await probe(store, SystemEntropy())


class IgnoresAbsent(MemoryObjects):
    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        return await super().put(key, data, ANY if expect is ABSENT else expect)


class IgnoresEtags(MemoryObjects):
    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        return await super().put(key, data, expect if expect is ABSENT else ANY)


class ForgetsEtags(MemoryObjects):
    async def get(self, key: str) -> Blob:
        return (await super().get(key))._replace(etag=ETag("always the same"))


class ListsBackwards(MemoryObjects):
    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        for info in reversed([info async for info in super().list(prefix, after)]):
            yield info


@pytest.mark.parametrize(
    ("lying", "complaint"),
    [
        (IgnoresAbsent, "if-none-match.*would lose data; use a store"),
        (IgnoresEtags, "if-match.*would lose data; use a store"),
        (ForgetsEtags, "always the same"),
        (ListsBackwards, "lists"),
    ],
)
async def test_a_store_that_lies_is_refused(lying: type[MemoryObjects], complaint: str) -> None:
    store = lying(SystemClock())
    with pytest.raises(StoreRefused, match=complaint):
        await probe(store, SystemEntropy())
    assert await list_keys(store, "") == []


class IgnoresAbsentAndKeepsAll(IgnoresAbsent):
    async def delete(self, keys: Sequence[str]) -> None:
        raise StoreUnavailable("no deletes today")


async def test_the_first_error_is_the_one_that_is_told() -> None:
    with pytest.raises(StoreRefused, match="if-none-match"):
        await probe(IgnoresAbsentAndKeepsAll(SystemClock()), SystemEntropy())
