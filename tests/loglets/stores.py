"""The stores that loglets are tested on, each as several processes would open it, and nodes that use them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from catena.errors import Conflict, ObjectMissing
from catena.loglets.base import Entry, LinkSpec
from catena.loglets.diskless.loglet import Diskless, DisklessLoglet, DisklessSettings
from catena.loglets.diskless.records import Control, IndexEntry, decode_control, decode_index_entry
from catena.loglets.diskless.tail_wire import ConnectTails
from catena.loglets.diskless.writer import WriterSettings
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.meta.memory import MemoryMeta
from catena.meta.object_storage import ObjectMeta
from catena.meta.postgres import PostgresMeta
from catena.meta.sqlite import SqliteMeta
from catena.objects.base import Blob, ObjectInfo, ObjectStore
from catena.objects.memory import MemoryObjects
from catena.runtime import Clock, SystemClock, SystemEntropy
from catena.testing.contracts.loglet import PATIENCE_S
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects
from catena.testing.postgres_server import PostgresServer
from catena.types import ANY, Buffers, ETag, Expect, Offset, TopicPartition

WAYS = ("memory", "memory without transact")
"""Enough where only the way to commit matters."""
BACKENDS = (*WAYS, "sqlite", "sqlite without transact", "postgres", "postgres without transact", "objects")


class QuickClock(SystemClock):
    """Waiting takes a part of the time that it seems to take, and a test can let time leap forward."""

    SPEED = 50

    def __init__(self) -> None:
        self._leapt_s = 0.0
        self.speed = self.SPEED
        """1: waiting takes its time. Where many wait at once all of their time passes, and sessions may end by it."""

    def leap(self, seconds: float) -> None:
        self._leapt_s += seconds

    def now_ms(self) -> int:
        return super().now_ms() + int(self._leapt_s * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self._leapt_s

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self.speed)
        self.leap(seconds - seconds / self.speed)


class ContentTagged(MemoryObjects):
    """Etags are made of the content, as S3 makes them: what was changed and changed back has its old one again."""

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        content = b"".join(data)
        if not isinstance(expect, Expect):
            try:
                found = await super().get(key)
            except ObjectMissing:
                raise Conflict(key) from None
            if _tag(found.data) != expect:
                raise Conflict(key)
            expect = found.etag
        await super().put(key, [content], expect)
        return _tag(content)

    async def get(self, key: str) -> Blob:
        data = (await super().get(key)).data
        return Blob(data, _tag(data))

    async def head(self, key: str) -> ObjectInfo:
        return (await super().head(key))._replace(etag=(await self.get(key)).etag)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix, after):
            yield await self.head(info.key)


def _tag(content: bytes) -> ETag:
    return ETag(hashlib.md5(content).hexdigest())


class DisklessNode:
    """What one process has of the diskless loglet, with faults of its own."""

    def __init__(
        self,
        meta: MetaStore,
        objects: ObjectStore,
        clock: Clock,
        settings: DisklessSettings,
        tails: ConnectTails | None = None,
    ) -> None:
        self.faults = Faults()
        self.diskless = Diskless(
            FaultyMeta(meta, self.faults),
            FaultyObjects(objects, self.faults),
            clock,
            SystemEntropy(),
            "cluster",
            settings,
            tails,
        )

    def open(self, link: LinkSpec) -> DisklessLoglet:
        return self.diskless.open(link)

    async def append(self, link: LinkSpec, entry: Entry) -> Offset:
        """Append, and wait until nothing is left to be written down."""
        offset = await self.open(link).append(entry)
        await self.diskless.writer.drain()
        return offset


class Stores:
    """An object store and a meta store, and whatever was opened on them, closed at the end."""

    def __init__(self, backend: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self._backend, _, without = backend.partition(" without ")
        self.can_transact = not without and self._backend != "objects"
        self.commit_step = "transact" if self.can_transact else "put control"
        """The step that commits an append."""
        self.quick_clock = QuickClock()
        # A store that polls would poll the quicker.
        self.clock: Clock = self.quick_clock if self._backend == "memory" else SystemClock()
        self.objects: ObjectStore = ContentTagged(self.clock)
        self._memory = MemoryMeta(self.clock, self.can_transact)
        self._folder = folder
        self._schema = f"test_{SystemEntropy().hex_id()}"
        self._request = request
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.meta = await self.open_meta()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._opened.aclose()

    async def open_meta(self) -> MetaStore:
        """A handle of its own, as another process has one."""
        meta = await self._open_meta()
        if meta is not self._memory:
            self._opened.push_async_callback(meta.close)
        return meta

    async def node(self, settings: DisklessSettings | None = None, clock: Clock | None = None) -> DisklessNode:
        node = DisklessNode(await self.open_meta(), self.objects, clock or self.clock, settings or DisklessSettings())
        self.close_at_end(node.diskless.close)
        return node

    async def hasty_node(self) -> DisklessNode:
        """Gives commits up soon, on every backend: its waiting is quick, so that the deadline is far from what a busy
        machine takes for the first try."""
        return await self.node(DisklessSettings(writer=WriterSettings(commit_deadline_ms=10_000)), self.quick_clock)

    def close_at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        self._opened.push_async_callback(close)

    async def control(self, tp: TopicPartition) -> Control:
        record = await self.meta.get(keys.control(tp))
        assert record is not None
        return decode_control(record.key, record.value)

    async def index(self, tp: TopicPartition) -> list[IndexEntry]:
        records = await self.meta.scan(keys.index_prefix(tp), keys.after(keys.index_prefix(tp)))
        return [decode_index_entry(record.key, record.value) for record in records]

    async def _open_meta(self) -> MetaStore:
        match self._backend:
            case "memory":
                return self._memory
            case "sqlite":
                return SqliteMeta(self._folder / "meta.db", self.clock, SystemEntropy(), self.can_transact)
            case "postgres":
                server: PostgresServer = self._request.getfixturevalue("postgres_server")
                return PostgresMeta(server.dsn, self.clock, SystemEntropy(), self._schema, self.can_transact)
            case "objects":
                return ObjectMeta(self.objects, self.clock, SystemEntropy())
            case _:
                raise AssertionError(self._backend)
