"""The meta store on object storage keeps the contract, on every object store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.meta.object_storage import ObjectMeta
from catena.objects.base import ObjectStore
from catena.objects.folder import FolderObjects
from catena.objects.memory import MemoryObjects
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.testing.contracts.meta import MetaStoreContract


class ObjectMetaContract(MetaStoreContract):
    @pytest.fixture
    async def meta(self, objects: ObjectStore) -> AsyncIterator[ObjectMeta]:
        store = ObjectMeta(objects, SystemClock(), SystemEntropy())
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, objects: ObjectStore) -> AsyncIterator[ObjectMeta]:
        store = ObjectMeta(objects, SystemClock(), SystemEntropy())
        yield store
        await store.close()


class TestOnMemory(ObjectMetaContract):
    @pytest.fixture
    def objects(self) -> MemoryObjects:
        return MemoryObjects(SystemClock())


class TestOnFolder(ObjectMetaContract):
    @pytest.fixture
    async def objects(self, tmp_path: Path) -> AsyncIterator[FolderObjects]:
        disk = Disk()
        yield await FolderObjects.open(tmp_path, disk, SystemClock(), SystemEntropy())
        disk.close()
