"""Read runs out of blobs: see `pieces`. Old data has a lane of its own: a backfill can't push the tail out."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from catena.errors import Corrupt, InvalidBatch
from catena.formats.bytes_batch import as_record_batch
from catena.formats.record_batch import check_crc, parse_header
from catena.formats.wal_blob import BYTES_BATCH_V1, KAFKA_BATCH_V2
from catena.loglets.base import Batch
from catena.loglets.diskless.records import IndexEntry
from catena.loglets.pieces import Lane, Piece, PieceReader
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Tasks
from catena.types import Buffer

OLD_AFTER_MS = 60_000
HOT_SLOTS = 16
COLD_SLOTS = 4
COLD_SHARE = 4
"""One of so many parts of the cache is for old data."""


class BlobReader:
    def __init__(self, objects: ObjectStore, clock: Clock, tasks: Tasks, cache_bytes: int) -> None:
        self._clock = clock
        self._hot = Lane(HOT_SLOTS, cache_bytes - cache_bytes // COLD_SHARE)
        self._cold = Lane(COLD_SLOTS, cache_bytes // COLD_SHARE)
        self._pieces = PieceReader(objects, clock, tasks, (self._hot, self._cold))
        self.lagging = 0
        """Reads of old data, by those who are far behind the tail."""

    async def read_run(self, entry: IndexEntry) -> list[Batch]:
        """The batches of this run, with the offsets that the index gives them."""
        return await self.read_runs([entry])

    async def read_runs(self, entries: Sequence[IndexEntry]) -> list[Batch]:
        """The batches of these runs."""
        pieces = self._as_pieces(entries)
        self.lagging += bool(pieces) and pieces[0].lane is self._cold
        return await self._pieces.read(pieces)

    def read_ahead(self, entries: Sequence[IndexEntry]) -> None:
        """Download what will be asked for, as far as there is room."""
        self._pieces.read_ahead(self._as_pieces(entries))

    @property
    def hits(self) -> int:
        return self._pieces.hits

    @property
    def misses(self) -> int:
        return self._pieces.misses

    def _as_pieces(self, entries: Sequence[IndexEntry]) -> list[Piece]:
        old_ms = self._clock.now_ms() - OLD_AFTER_MS
        return [
            Piece(
                object_key(entry.data_key),
                entry.byte_offset,
                entry.byte_length,
                entry.start_offset,
                self._cold if entry.created_at_ms < old_ms else self._hot,
                functools.partial(decode_run, entry),
            )
            for entry in entries
        ]


def object_key(data_key: str) -> str:
    """The key in our store; older data names objects by full address, `s3://bucket/key`."""
    scheme, separator, rest = data_key.partition("://")
    return rest.partition("/")[2] if separator and scheme == "s3" else data_key


def decode_run(entry: IndexEntry, body: Buffer) -> list[Batch]:
    """Cut a run into its batches and check each; this is where a store's bytes are last doubted."""
    batches: list[Batch] = []
    offset = entry.start_offset
    at = 0
    try:
        rest = memoryview(as_batches(entry, body))
        while rest:
            header = parse_header(rest)
            check_crc(rest, header)
            batches.append(Batch(offset, header.count, rest[: header.length]))
            offset += header.count
            at += header.length
            rest = rest[header.length :]
        if offset != entry.end_offset + 1:
            raise Corrupt(f"the run ends here, and the index says at {entry.end_offset + 1}")
    except (InvalidBatch, Corrupt) as error:
        place = f"object {entry.data_key}, the batch at byte {entry.byte_offset + at} for offset {offset}"
        raise Corrupt(f"{place}: {error}") from error
    return batches


def as_batches(entry: IndexEntry, body: Buffer) -> Buffer:
    if entry.encoding == KAFKA_BATCH_V2:
        return body
    if entry.encoding == BYTES_BATCH_V1:
        return as_record_batch(body, entry.created_at_ms)
    raise Corrupt(f"encoding {entry.encoding!r} is unknown")
