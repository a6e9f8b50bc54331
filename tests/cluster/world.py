"""Nodes that share a meta store, and a clock that stands still until the test moves it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from catena.cluster.membership import Membership, MembershipSettings
from catena.cluster.placement import NodeId
from catena.cluster.view import Address, NodeProfile
from catena.errors import StoreUnavailable
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore, Record, Session
from catena.meta.memory import MemoryMeta
from catena.meta.sqlite import SqliteMeta
from catena.runtime import SystemEntropy
from catena.testing.faults import Faults, FaultyMeta
from catena.types import ANY, Expect, Version
from tests.meta.manual_clock import ManualClock

TTL_S = 6.0
REFRESH_S = 1.0
STEP_S = 0.25


class NodeMeta(FaultyMeta):
    """One node's way to the store, which can be cut, and the sessions it got there."""

    def __init__(self, store: MetaStore) -> None:
        self.store = store
        self.faults = Faults()
        self.sessions: list[Session] = []
        self.is_down = False
        self.is_read_only = False
        super().__init__(store, self.faults)

    async def get(self, key: str) -> Record | None:
        self._check()
        return await super().get(key)

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        self._check()
        if self.is_read_only:
            raise StoreUnavailable("the store takes no writes")
        return await super().put(key, value, expect, ephemeral)

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        self._check()
        return await super().scan(start, end, limit)

    async def session(self, ttl_ms: int) -> Session:
        self._check()
        session = await super().session(ttl_ms)
        self.sessions.append(session)
        return session

    async def lose_session(self) -> None:
        """The store ends it, and its records are gone."""
        await self.sessions[-1].close()

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("the way to the store is cut")


class World:
    def __init__(self, backend: str, folder: Path, opened: AsyncExitStack) -> None:
        self.clock = ManualClock()
        self._backend = backend
        self._path = folder / "meta.db"
        self._opened = opened
        self._stores: list[MetaStore] = []

    def open(self) -> NodeMeta:
        """As another process opens it."""
        if self._backend == "memory":
            store = self._stores[0] if self._stores else MemoryMeta(self.clock)
        else:
            store = SqliteMeta(self._path, self.clock, SystemEntropy())
        if store not in self._stores:
            self._stores.append(store)
            self._opened.push_async_callback(store.close)
        return NodeMeta(store)

    async def join(self, node_id: NodeId | None = None, meta: NodeMeta | None = None, **profile: Any) -> Membership:
        membership = await Membership.join(
            meta or self.open(),
            self.clock,
            SystemEntropy(),
            NodeProfile(**({"listeners": {"main": Address("host", 9092)}} | profile)),
            node_id,
            MembershipSettings(session_ttl_ms=int(TTL_S * 1000), refresh_ms=int(REFRESH_S * 1000)),
        )
        self._opened.push_async_callback(membership.close)
        return membership

    async def kill(self, meta: NodeMeta) -> None:
        """The node of this store does nothing any more, and its session is not kept. SQLite only: none shares it."""
        self._stores.remove(meta.store)
        await meta.store.close()

    async def until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> float:
        """Let time pass until the condition holds; returns how long that took."""
        began = self.clock.monotonic()
        while not condition():
            assert self.clock.monotonic() - began < limit_s, f"it took longer than {limit_s} s"
            await self.clock.advance(STEP_S)
            for store in self._stores:
                # What was asked before has been answered when these have, by the writer and by the reader.
                await store.delete(keys.CLUSTER)
                await store.get(keys.CLUSTER)
        return self.clock.monotonic() - began
