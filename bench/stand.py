"""Nodes on real stores, for the benchmarks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from catena.config import Settings
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.loglets.base import Entry
from catena.meta.base import MetaStore
from catena.node import Node
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_stores


class WithoutTransact:
    """Forwards to a meta store, and says that it can't transact: then commits are made one partition at a time."""

    can_transact = False

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meta, name)


@asynccontextmanager
async def open_node(settings: Settings, transact: bool = True) -> AsyncIterator[Node]:
    """`transact`: whether the meta store is used with it, where it could be."""
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_stores(settings, clock, entropy) as stores:
        meta = stores.meta if transact else cast(MetaStore, WithoutTransact(stores.meta))
        node = await Node.start(settings, meta, stores.objects, clock, entropy)
        try:
            yield node
        finally:
            await node.close()


def embedded_node(folder: Path) -> AbstractAsyncContextManager[Node]:
    """The embedded default: a folder and SQLite, fsync on."""
    return open_node(Settings(data=str(folder)))


def entry_of(values: Sequence[bytes], producer: tuple[int, int] | None = None) -> Entry:
    """One batch; `producer` is an idempotent producer's id and sequence number."""
    records = [(None, value, (), 0) for value in values]
    if producer is None:
        data = build_batch(records)
    else:
        data = build_batch(records, producer_id=producer[0], producer_epoch=0, base_sequence=producer[1])
    return Entry(parse_header(data), data)
