"""Nodes on real stores, for the benchmarks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from catena.config import Settings
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.loglets.base import Entry
from catena.meta.sqlite import SqliteMeta
from catena.node import Node
from catena.objects.folder import FolderObjects
from catena.runtime import Disk, SystemClock, SystemEntropy


@asynccontextmanager
async def embedded_node(folder: Path, settings: Settings | None = None) -> AsyncIterator[Node]:
    """The embedded default: a folder and SQLite, fsync on."""
    clock, entropy, disk = SystemClock(), SystemEntropy(), Disk()
    objects = await FolderObjects.open(folder / "objects", disk, clock, entropy)
    meta = SqliteMeta(folder / "meta.db", clock, entropy)
    node = await Node.start(settings or Settings(), meta, objects, clock, entropy)
    try:
        yield node
    finally:
        await node.close()
        await meta.close()
        await objects.close()
        disk.close()


def entry_of(values: Sequence[bytes], producer: tuple[int, int] | None = None) -> Entry:
    """One batch; `producer` is an idempotent producer's id and sequence number."""
    stamp = {} if producer is None else {"producer_id": producer[0], "producer_epoch": 0, "base_sequence": producer[1]}
    data = build_batch([(None, value, (), 0) for value in values], **stamp)
    return Entry(parse_header(data), data)
