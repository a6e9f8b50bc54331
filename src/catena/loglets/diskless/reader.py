"""Find and read what is in a diskless link: tail cache, then index (or `pending` at the tail), then blobs.

Where processes of a host share their tails (`tail_sharing`), who waits for more of a log that one of them has just told
of does not watch the store. That there is nothing new is only ever said by the store.

An offset that the control record counts as committed is in the index or in `pending`; when it is in neither, it was
moved elsewhere (tiered, trimmed) and the caller's view of the chain is old.

Who reads on from where it stopped will mostly go on: what follows is downloaded meanwhile.
"""

from __future__ import annotations

import asyncio

from catena.errors import CatenaError, ObjectMissing, Sealed, StaleView, StoreUnavailable
from catena.formats.record_batch import parse_header
from catena.formats.records import NO_TIMESTAMP
from catena.loglets.base import Batch, Extent, LinkSpec, Run, Tail
from catena.loglets.diskless.blobs import BlobReader, object_key
from catena.loglets.diskless.controls import Controls
from catena.loglets.diskless.index import PAGE, Index
from catena.loglets.diskless.partition import Partition
from catena.loglets.diskless.records import Control, IndexEntry
from catena.loglets.diskless.tail_cache import TailCache
from catena.loglets.diskless.tail_sharing import TailSharing
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore, Watch
from catena.runtime import Clock, Tasks
from catena.types import Offset

READ_AHEAD_BYTES = 4 << 20
READERS_AHEAD = 16
"""Of all partitions, at the same time."""
WATCH_LINGER_S = 5.0


class Reader:
    def __init__(
        self,
        meta: MetaStore,
        blobs: BlobReader,
        tail_cache: TailCache,
        clock: Clock,
        tasks: Tasks,
        sharing: TailSharing | None = None,
    ) -> None:
        self._meta = meta
        self._blobs = blobs
        self._tail_cache = tail_cache
        self._clock = clock
        self._tasks = tasks
        self._sharing = sharing
        self._controls = Controls(meta, tasks)
        self.index = Index(meta, clock)
        self._readers_ahead = 0
        if sharing is not None:
            sharing.told = self._leave_to_others

    async def read(self, partition: Partition, link: LinkSpec, offset: Offset, max_bytes: int) -> list[Batch]:
        if self._sharing is not None:
            self._sharing.want(partition)
        if batches := self._tail_cache.read(partition.tp, offset, max_bytes):
            return batches
        if self._sharing is not None and offset == partition.tail:
            self._sharing.hear()  # what wakes comes later than what it tells of
            if offset < partition.tail and (batches := self._tail_cache.read(partition.tp, offset, max_bytes)):
                return batches
        if offset >= partition.tail:
            control = await self._controls.read(partition)
            if offset >= partition.tail:
                tail = _tail(control, link)
                if tail.sealed:
                    raise Sealed(f"{partition.tp}: epoch {link.epoch} ends at {tail.offset}")
                return []
        if self._sharing is not None:
            self._sharing.not_cached(partition, offset)
        entries = await self.index.find(partition, offset, max_bytes) or await self._find_pending(partition, offset)
        try:
            batches = _select(await self._blobs.read_runs(entries), offset, max_bytes)
        except ObjectMissing:
            self.index.forget(partition)  # another node may have moved the bytes, and what is kept is old
            raise
        if partition.places.reads_on(offset, batches[-1].end):
            self._read_ahead(partition, batches[-1].end)
        return batches

    def forget(self, partition: Partition) -> None:
        self.index.forget(partition)

    def _read_ahead(self, partition: Partition, offset: Offset) -> None:
        if self._readers_ahead < READERS_AHEAD and not self._tasks.closed and offset < partition.tail:
            self._readers_ahead += 1
            self._tasks.spawn("read ahead", self._download(partition, offset))

    async def _download(self, partition: Partition, offset: Offset) -> None:
        try:
            entries = await self.index.find(partition, offset, READ_AHEAD_BYTES)
            cached = self._tail_cache.start(partition.tp)
            self._blobs.read_ahead([entry for entry in entries if cached is None or entry.start_offset < cached])
        except CatenaError:
            pass  # whoever comes to read it gets the error
        finally:
            self._readers_ahead -= 1

    async def tail(self, partition: Partition, link: LinkSpec) -> Tail:
        """Linearizable. Raises Sealed when a later link has been opened: then the chain knows where this one ends."""
        return _tail(await self._controls.read(partition), link)

    async def wait_for_tail(self, partition: Partition, link: LinkSpec, beyond: Offset) -> Offset | None:
        await self._wait_for_tail(partition, link, beyond)
        reached = partition.surely_reaches(link.epoch)
        return reached if reached > beyond else None

    async def _wait_for_tail(self, partition: Partition, link: LinkSpec, beyond: Offset) -> None:
        if self._sharing is not None:
            self._sharing.want(partition)
        if partition.tail > beyond:
            return
        if self._tasks.closed:
            raise StoreUnavailable("the node is shutting down")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition.tail_waiters.append(waiter)
        if partition.watch is None:
            self._watch(partition, link)
        try:
            await waiter
        finally:
            if waiter in partition.tail_waiters:
                partition.tail_waiters.remove(waiter)
            if partition.watch is not None and not partition.watch_lingers:
                # Whoever follows a log waits again soon, and a new watch costs a look.
                partition.watch_lingers = True
                asyncio.get_running_loop().call_later(WATCH_LINGER_S, self._end_watch, partition)

    async def find_time(self, partition: Partition, timestamp_ms: int, start: Offset) -> Offset | None:
        """Records need not be in order of time, so this looks at one index entry after the other."""
        # Looked at first: an entry that is written to the index meanwhile is then found there, or here, or in both.
        control = await self._controls.read(partition)
        # Mostly a few entries tell; where they do not, many will be needed.
        after, limit = start, PAGE
        while entries := await self._entries_from(partition, after, control, limit):
            for entry in entries:
                if _newest(entry) < timestamp_ms:
                    continue
                if (found := await self._find_time_in(entry, timestamp_ms, start)) is not None:
                    return found
            after, limit = entries[-1].end_offset + 1, min(2 * limit, SCAN_LIMIT)
        return None

    async def find_max_time(self, partition: Partition, start: Offset, end: Offset | None) -> Offset | None:
        """Runs are read where the index can't tell, at the edges and in old data, and the one that is found."""
        control = await self._controls.read(partition)
        newest, found = NO_TIMESTAMP, None
        found_run: IndexEntry | None = None
        after = start
        while entries := await self._entries_from(partition, after, control, SCAN_LIMIT):
            for entry in entries:
                if _newest(entry) <= newest or (end is not None and entry.start_offset >= end):
                    continue
                is_inside = entry.start_offset >= start and (end is None or entry.end_offset < end)
                if is_inside and entry.max_timestamp >= 0:
                    newest, found_run = entry.max_timestamp, entry
                else:
                    timestamp_ms, offset = await self._find_max_time_in(entry, start, end)
                    if timestamp_ms > newest:
                        newest, found, found_run = timestamp_ms, offset, None
            after = entries[-1].end_offset + 1
            if end is not None and after >= end:
                break
        return found if found_run is None else (await self._find_max_time_in(found_run, start, end))[1]

    async def runs(self, partition: Partition, start: Offset, limit: int) -> list[Run]:
        control = await self._controls.read(partition)
        entries = await self.index.page(partition, start, limit)
        if len(entries) < limit and control is not None and control.pending is not None:
            after = entries[-1].end_offset if entries else start - 1
            entries += [entry for entry in control.pending.entries if entry.end_offset > after]
        return [_run(entry) for entry in entries[:limit]]

    async def extents(self, partition: Partition, start: Offset, end: Offset, limit: int) -> list[Extent]:
        """Read first: what it counts is in the index by then, or is pending in this very record."""
        control = await self._controls.read(partition)
        if control is None or start >= min(end, control.next):
            return []
        entries = await self.index.page(partition, start, limit)
        if len(entries) < limit and control.pending is not None:
            after = entries[-1].end_offset if entries else start - 1
            entries += [entry for entry in control.pending.entries if entry.end_offset > after]
        found: list[Extent] = []
        following = start
        for entry in entries[:limit]:
            is_next = entry.start_offset == following if found else entry.start_offset <= start
            if not is_next or entry.start_offset >= end:
                break
            found.append(_extent(entry))
            following = entry.end_offset + 1
        if not found:
            raise StaleView(f"{partition.tp}: offset {start} is not here any more")
        return found

    async def _entries_from(
        self, partition: Partition, offset: Offset, control: Control | None, limit: int
    ) -> list[IndexEntry]:
        """Entries from the one that may hold `offset` on: some of the index, and at its end those of `pending`."""
        if control is not None and offset >= control.next:
            return []  # what has come since is not looked for: this must end
        entries = await self.index.page(partition, offset, limit)
        if not entries and control is not None and control.pending is not None:
            return [entry for entry in control.pending.entries if entry.end_offset >= offset]
        return entries

    async def _find_time_in(self, entry: IndexEntry, timestamp_ms: int, start: Offset) -> Offset | None:
        for batch in await self._blobs.read_run(entry):
            if batch.end > start and parse_header(batch.data).max_timestamp >= timestamp_ms:
                return batch.offset
        return None

    async def _find_max_time_in(
        self, entry: IndexEntry, start: Offset, end: Offset | None
    ) -> tuple[int, Offset | None]:
        newest, found = NO_TIMESTAMP, None
        for batch in await self._blobs.read_run(entry):
            if batch.end > start and (end is None or batch.offset < end):
                timestamp_ms = parse_header(batch.data).max_timestamp
                if timestamp_ms > newest:
                    newest, found = timestamp_ms, batch.offset
        return newest, found

    async def _find_pending(self, partition: Partition, offset: Offset) -> list[IndexEntry]:
        control = await self._controls.read(partition)
        pending = control.pending if control is not None else None
        found = [entry for entry in pending.entries if entry.end_offset >= offset] if pending is not None else []
        if not found or found[0].start_offset > offset:
            # Between our two looks the pending entry may have been written to the index and replaced.
            found = await self.index.find(partition, offset, 1)
        if not found or found[0].start_offset > offset:
            raise StaleView(f"{partition.tp}: offset {offset} is not here any more")
        return found

    def _end_watch(self, partition: Partition) -> None:
        partition.watch_lingers = False
        if partition.watch is not None and not partition.tail_waiters:
            partition.watch.cancel()
            partition.watch = None

    def _trusted_s(self, partition: Partition, link: LinkSpec) -> float:
        return 0.0 if self._sharing is None else self._sharing.trusted_s(partition, link.epoch)

    def _leave_to_others(self, partition: Partition) -> None:
        """They tell of what is committed here: for as long as that is enough the store need not do so, too."""
        link = partition.watched_in_store
        if link is not None and partition.watch is not None and self._trusted_s(partition, link) > 0:
            partition.watch.cancel()
            self._watch(partition, link)

    def _watch(self, partition: Partition, link: LinkSpec) -> None:
        partition.watched_in_store = None
        partition.watch = self._tasks.spawn("watch the tail", self._watch_tail(partition, link))

    async def _watch_tail(self, partition: Partition, link: LinkSpec) -> None:
        """One for all who wait for this partition's tail. The store is left alone while others tell of each commit."""
        watch: Watch | None = None
        try:
            while True:
                while (trusted_s := self._trusted_s(partition, link)) > 0:
                    await self._clock.sleep(trusted_s)
                if watch is None:
                    watch = self._meta.watch(keys.control(partition.tp))
                    partition.watched_in_store = link
                control = await self._controls.read(partition)
                if control is not None and (control.epoch > link.epoch or control.state == "FENCED"):
                    partition.wake()
                    return
                await watch.changed()
        except CatenaError as error:
            if not isinstance(error, StoreUnavailable):
                raise
            partition.wake()  # they look for themselves, and get the error
        finally:
            if watch is not None:
                watch.close()
            if partition.watch is asyncio.current_task():
                partition.watch = partition.watched_in_store = None
                partition.wake()


def _newest(entry: IndexEntry) -> int:
    """No record of the run is newer, as far as older data tells."""
    return entry.max_timestamp if entry.max_timestamp >= 0 else entry.created_at_ms


def _extent(entry: IndexEntry) -> Extent:
    return Extent(
        entry.start_offset,
        entry.end_offset + 1,
        object_key(entry.data_key),
        entry.byte_offset,
        entry.byte_length,
        entry.encoding,
        entry.created_at_ms,
    )


def _run(entry: IndexEntry) -> Run:
    newest_ms = entry.max_timestamp if entry.max_timestamp >= 0 else entry.created_at_ms or NO_TIMESTAMP
    return Run(entry.end_offset + 1, entry.byte_length or 0, newest_ms)


def _tail(control: Control | None, link: LinkSpec) -> Tail:
    if control is None or control.epoch < link.epoch:
        return Tail(link.base, sealed=False)
    if control.epoch > link.epoch:
        raise Sealed(f"{link.partition}: epoch {control.epoch} has followed epoch {link.epoch}")
    return Tail(control.next, control.state == "FENCED")


def _select(batches: list[Batch], offset: Offset, max_bytes: int) -> list[Batch]:
    """From the batch that holds `offset` on, at least one, then up to `max_bytes`."""
    selected: list[Batch] = []
    for batch in batches:
        if batch.end <= offset:
            continue
        max_bytes -= len(batch.data)
        if selected and max_bytes < 0:
            break
        selected.append(batch)
    return selected
