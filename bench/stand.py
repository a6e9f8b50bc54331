"""Nodes on real stores, for the benchmarks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from catena.config import Settings
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.loglets.base import Entry
from catena.node import Node
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_stores


@asynccontextmanager
async def open_node(settings: Settings) -> AsyncIterator[Node]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_stores(settings, clock, entropy) as stores:
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
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
