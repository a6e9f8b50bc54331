"""The tiered loglet: the oldest part of a log, in large segments. Read-only: pipeline jobs write it.

Its content is one immutable manifest, which the link's params name. Tiering more, merging segments and dropping old
ones each make a new manifest and a new link with an epoch of its own; so nothing here ever becomes wrong, it only gets
out of use. An object that is gone is ObjectMissing, and the chain, read anew, tells where its offsets are now.

`Tiered` is what a node has once: readers and caches. A `TieredLoglet` is one link of one partition.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from catena.errors import Corrupt, Sealed, StaleView
from catena.formats.manifest import Manifest
from catena.loglets.base import Batch, Entry, Extent, LinkSpec, Run, SealResult, Stored, Tail
from catena.loglets.pieces import Lane, PieceReader, Places
from catena.loglets.tiered.catalog import Catalog
from catena.loglets.tiered.reader import Reader
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Tasks
from catena.types import Offset

AtLeast0: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

DOWNLOADS_AT_ONCE = 8


class TieredSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much memory the caches take, in bytes."""

    cache_bytes: AtLeast0 = 64 << 20
    """Of batches; half of it is for what is read ahead."""
    index_cache_bytes: AtLeast0 = 16 << 20
    """An index has 32 bytes for each 64 KiB of a segment."""
    manifest_cache_bytes: AtLeast0 = 16 << 20


class Tiered:
    def __init__(self, objects: ObjectStore, clock: Clock, tasks: Tasks, settings: TieredSettings) -> None:
        self.catalog = Catalog(objects, tasks, settings.manifest_cache_bytes, settings.index_cache_bytes)
        lane = Lane(DOWNLOADS_AT_ONCE, settings.cache_bytes)
        self.pieces = PieceReader(objects, clock, tasks, [lane])
        self.reader = Reader(self.catalog, self.pieces, lane, tasks)

    def open(self, link: LinkSpec) -> TieredLoglet:
        return TieredLoglet(self, link)


class TieredLoglet:
    def __init__(self, node: Tiered, link: LinkSpec) -> None:
        key = link.params.get("manifest")
        if not isinstance(key, str):
            raise Corrupt(f"{link.partition}: the tiered link of epoch {link.epoch} names no manifest: {link.params}")
        self._node = node
        self._link = link
        self._manifest_key = key
        self._places = Places()

    async def append(self, entry: Entry) -> Offset:
        raise Sealed(f"{self._link.partition}: {entry.header.count} records cannot be appended to what is tiered")

    async def append_stored(self, stored: Stored) -> Offset:
        raise Sealed(f"{self._link.partition}: {stored.header.count} records cannot be appended to what is tiered")

    async def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        manifest = await self._manifest()
        if offset >= manifest.end:
            raise Sealed(f"{self._link.partition}: epoch {self._link.epoch} ends at {manifest.end}")
        if offset < manifest.base:
            raise StaleView(f"{self._link.partition}: offset {offset} is not here any more")
        return await self._node.reader.read(manifest, self._places, offset, max_bytes)

    async def tail(self) -> Tail:
        return Tail((await self._manifest()).end, sealed=True)

    async def wait_for_tail(self, beyond: Offset) -> None:
        """It is sealed: there is nothing to wait for."""

    async def find_time(self, timestamp_ms: int, start: Offset) -> Offset | None:
        return await self._node.reader.find_time(await self._manifest(), timestamp_ms, start)

    async def find_max_time(self, start: Offset, end: Offset | None) -> Offset | None:
        manifest = await self._manifest()
        return await self._node.reader.find_max_time(manifest, start, manifest.end if end is None else end)

    async def runs(self, start: Offset, limit: int) -> list[Run]:
        """One for each segment."""
        manifest = await self._manifest()
        first = manifest.segment_at(start)
        return [
            Run(
                segment.end,
                segment.body_bytes,
                segment.max_timestamp if segment.max_timestamp >= 0 else segment.appended_at_ms,
            )
            for segment in manifest.segments[first : first + limit]
        ]

    async def extents(self, start: Offset, end: Offset, limit: int) -> list[Extent]:
        manifest = await self._manifest()
        if start < manifest.base:
            raise StaleView(f"{self._link.partition}: offset {start} is not here any more")
        return await self._node.reader.extents(manifest, start, min(end, manifest.end), limit)

    async def seal(self) -> SealResult:
        """It is; who wrote to it is long known to the link that follows."""
        return SealResult((await self._manifest()).end, {})

    async def trim(self, offset: Offset) -> None:
        """The chain says where the log starts; pipeline jobs drop segments, and vacuum collects them."""

    async def close(self) -> None:
        pass

    async def _manifest(self) -> Manifest:
        return await self._node.catalog.manifest(self._manifest_key, self._link.partition)
