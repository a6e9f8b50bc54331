"""Read runs out of blobs: each is downloaded once, checked, cut into batches and kept in a bounded cache.

What is asked for in one turn of the loop is gathered by blob, and ranges that lie close together become one get; so a
request that reads many partitions downloads each blob they share once. Old data has a lane of its own, with its own
slots and its own share of the cache: a backfill can't push the tail out or make it wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from catena.errors import CatenaError, Corrupt, InvalidBatch, StoreUnavailable
from catena.formats.bytes_batch import as_record_batch
from catena.formats.record_batch import check_crc, parse_header
from catena.formats.wal_blob import BYTES_BATCH_V1, KAFKA_BATCH_V2
from catena.loglets.base import Batch
from catena.loglets.diskless.records import IndexEntry
from catena.objects.base import ObjectStore, Range
from catena.runtime import Clock, Tasks
from catena.types import Buffer

COALESCE_GAP_BYTES = 128 << 10
"""Bytes between two ranges that are rather read than asked for in a second get."""
COALESCE_MAX_BYTES = 16 << 20
OLD_AFTER_MS = 60_000
HOT_SLOTS = 16
COLD_SLOTS = 4
COLD_SHARE = 4
"""One of so many parts of the cache is for old data."""


class _RunKey(NamedTuple):
    data_key: str
    byte_offset: int


class _Lane:
    """Slots for downloads, and a least-recently-used cache of runs.

    What is downloaded ahead and has not been read takes half of the cache at most: it must still be there when its
    reader comes.
    """

    def __init__(self, slots: int, max_bytes: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self._max_bytes = max_bytes
        self._bytes = self._bytes_ahead = 0
        self._runs: OrderedDict[_RunKey, list[Batch]] = OrderedDict()
        self._ahead: dict[_RunKey, int] = {}

    def get(self, key: _RunKey) -> list[Batch] | None:
        run = self._runs.get(key)
        if run is not None:
            self._runs.move_to_end(key)
            self.not_ahead(key)
        return run

    def has(self, key: _RunKey) -> bool:
        return key in self._runs

    def keep(self, key: _RunKey, run: list[Batch]) -> None:
        self._runs[key] = run
        self._bytes += _size(run)
        while self._bytes > self._max_bytes and len(self._runs) > 1:
            key, run = self._runs.popitem(last=False)
            self._bytes -= _size(run)
            self.not_ahead(key)

    def may_go_ahead(self, key: _RunKey, size: int) -> bool:
        if self._bytes_ahead + size > self._max_bytes // 2:
            return False
        self._ahead[key] = size
        self._bytes_ahead += size
        return True

    def not_ahead(self, key: _RunKey) -> None:
        """It was read, or is not coming."""
        self._bytes_ahead -= self._ahead.pop(key, 0)


class _Want(NamedTuple):
    entry: IndexEntry
    lane: _Lane
    run: asyncio.Future[list[Batch]]


class BlobReader:
    def __init__(self, objects: ObjectStore, clock: Clock, tasks: Tasks, cache_bytes: int) -> None:
        self._objects = objects
        self._clock = clock
        self._tasks = tasks
        self._hot = _Lane(HOT_SLOTS, cache_bytes - cache_bytes // COLD_SHARE)
        self._cold = _Lane(COLD_SLOTS, cache_bytes // COLD_SHARE)
        self._wanted: dict[str, list[_Want]] = {}
        self._coming: dict[_RunKey, asyncio.Future[list[Batch]]] = {}
        self.hits = 0
        self.misses = 0

    async def read_run(self, entry: IndexEntry) -> list[Batch]:
        """The batches of this run, with the offsets that the index gives them."""
        return await self.read_runs([entry])

    async def read_runs(self, entries: Sequence[IndexEntry]) -> list[Batch]:
        """The batches of these runs."""
        batches: list[Batch] = []
        for run in [self._start(entry) for entry in entries]:
            # Shielded: another reader may wait for the same download.
            batches += run if isinstance(run, list) else await asyncio.shield(run)
        return batches

    def read_ahead(self, entries: Sequence[IndexEntry]) -> None:
        """Download what will be asked for, as far as there is room."""
        for entry in entries:
            key, lane = _RunKey(entry.data_key, entry.byte_offset), self._lane(entry)
            if entry.byte_length is None or key in self._coming or self._hot.has(key) or self._cold.has(key):
                continue
            if self._tasks.closed or not lane.may_go_ahead(key, entry.byte_length):
                return
            self._want(key, _Want(entry, lane, asyncio.get_running_loop().create_future()))

    def _start(self, entry: IndexEntry) -> list[Batch] | asyncio.Future[list[Batch]]:
        key = _RunKey(entry.data_key, entry.byte_offset)
        if (run := self._hot.get(key) or self._cold.get(key)) is not None:
            self.hits += 1
            return run
        if (coming := self._coming.get(key)) is not None:
            self._hot.not_ahead(key)
            self._cold.not_ahead(key)
            return coming
        self.misses += 1
        return self._want(key, _Want(entry, self._lane(entry), asyncio.get_running_loop().create_future()))

    def _lane(self, entry: IndexEntry) -> _Lane:
        return self._cold if self._clock.now_ms() - entry.created_at_ms > OLD_AFTER_MS else self._hot

    def _want(self, key: _RunKey, want: _Want) -> asyncio.Future[list[Batch]]:
        if self._tasks.closed:
            raise StoreUnavailable("the node is shutting down")
        self._coming[key] = want.run
        want.run.add_done_callback(lambda _: self._coming.pop(key, None))
        if want.entry.data_key not in self._wanted:
            self._wanted[want.entry.data_key] = []
            asyncio.get_running_loop().call_soon(self._fetch_wanted, want.entry.data_key)
        self._wanted[want.entry.data_key].append(want)
        return want.run

    def _fetch_wanted(self, data_key: str) -> None:
        wants = self._wanted.pop(data_key)
        if self._tasks.closed:
            _fail(wants, StoreUnavailable("the node is shutting down"))
        else:
            self._tasks.spawn("read blob", self._fetch(data_key, wants))

    async def _fetch(self, data_key: str, wants: list[_Want]) -> None:
        try:
            async with wants[0].lane.slots:
                bodies = await self._get(data_key, wants)
            for want, body in zip(wants, bodies, strict=True):
                _deliver(want, body)
        except CatenaError as error:
            _fail(wants, error)
        except BaseException:
            _fail(wants, StoreUnavailable(f"reading {data_key} was interrupted"))
            raise

    async def _get(self, data_key: str, wants: Sequence[_Want]) -> list[Buffer]:
        """The body of each want, in few gets."""
        key = object_key(data_key)
        if any(want.entry.byte_length is None for want in wants):
            whole = memoryview((await self._objects.get(key)).data)
            return [_cut(whole, want.entry) for want in wants]
        ranges = [Range(want.entry.byte_offset, want.entry.byte_length or 0) for want in wants]
        merged = coalesce(ranges)
        parts = [memoryview(part) for part in await self._objects.get_ranges(key, merged)]
        bodies: list[Buffer] = []
        for start, length in ranges:
            at = next(i for i, range_ in enumerate(merged) if range_.start <= start < range_.start + range_.length)
            body = parts[at][start - merged[at].start :][:length]
            # A run of its own, so that what the cache holds of a merged range is what it counts.
            bodies.append(body if len(body) == len(parts[at]) else bytes(body))
        return bodies


def coalesce(ranges: Sequence[Range]) -> list[Range]:
    """Ranges that cover these, fewer where they lie close together."""
    merged: list[Range] = []
    for start, length in sorted(ranges):
        if merged:
            last = merged[-1]
            end = max(last.start + last.length, start + length)
            if start - (last.start + last.length) <= COALESCE_GAP_BYTES and end - last.start <= COALESCE_MAX_BYTES:
                merged[-1] = Range(last.start, end - last.start)
                continue
        merged.append(Range(start, length))
    return merged


def object_key(data_key: str) -> str:
    """The key in our store; older data names objects by full address, `s3://bucket/key`."""
    scheme, separator, rest = data_key.partition("://")
    return rest.partition("/")[2] if separator and scheme == "s3" else data_key


def _cut(whole: memoryview, entry: IndexEntry) -> memoryview:
    return whole[entry.byte_offset :] if entry.byte_length is None else whole[entry.byte_offset :][: entry.byte_length]


def _deliver(want: _Want, body: Buffer) -> None:
    try:
        run = decode_run(want.entry, body)
    except Corrupt as error:
        _fail([want], error)
        return
    want.lane.keep(_RunKey(want.entry.data_key, want.entry.byte_offset), run)
    if not want.run.done():
        want.run.set_result(run)


def _fail(wants: Sequence[_Want], error: CatenaError) -> None:
    for want in wants:
        want.lane.not_ahead(_RunKey(want.entry.data_key, want.entry.byte_offset))
        if not want.run.done():
            want.run.set_exception(error)
            want.run.exception()  # nobody may be waiting: it was read ahead, or another run failed first


def decode_run(entry: IndexEntry, body: Buffer) -> list[Batch]:
    """Cut a run into its batches and check each; this is where a store's bytes are last doubted."""
    batches: list[Batch] = []
    offset = entry.start_offset
    at = 0
    try:
        rest = memoryview(_as_batches(entry, body))
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


def _as_batches(entry: IndexEntry, body: Buffer) -> Buffer:
    if entry.encoding == KAFKA_BATCH_V2:
        return body
    if entry.encoding == BYTES_BATCH_V1:
        return as_record_batch(body, entry.created_at_ms)
    raise Corrupt(f"encoding {entry.encoding!r} is unknown")


def _size(run: list[Batch]) -> int:
    return sum(len(batch.data) for batch in run)
