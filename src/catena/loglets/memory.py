"""A loglet in memory: the contract in its plainest form. For tests, and as the second kind that a chain can move to.

The entries live in a `MemoryMedium`, which stands for the disks; loglets of several (simulated) nodes share one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence

from catena.errors import CatenaError, Corrupt, RetryLater, Sealed, StaleView, StoreRefused, StoreUnavailable
from catena.formats.record_batch import BatchHeader, parse_header, split_batches
from catena.formats.records import NO_TIMESTAMP
from catena.loglets.base import Batch, Entry, Extent, LinkSpec, Run, SealResult, Stored, Tail
from catena.loglets.producers import ProducerState, check_first, find_duplicate, unexpired, with_batch
from catena.runtime import Clock
from catena.types import Buffer, Epoch, Offset, TopicPartition


class _Log:
    def __init__(self, base: Offset, producers: Mapping[int, ProducerState]) -> None:
        self.base = base
        self.batches: list[Batch] = []
        self.producers = dict(producers)
        self.sealed = False
        self.changed = asyncio.Event()

    @property
    def tail(self) -> Offset:
        return self.batches[-1].end if self.batches else self.base

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryMedium:
    """All memory loglets of a process, or of a simulated cluster.

    A link says which medium its records are in. A process that has another one can't serve it: it would take appends at
    offsets that are taken.
    """

    def __init__(self, name: str = "shared") -> None:
        self.name = name
        self._logs: dict[tuple[TopicPartition, Epoch], _Log] = {}

    def find(self, link: LinkSpec) -> _Log | None:
        return self._logs.get((link.partition, link.epoch))

    def create(self, link: LinkSpec, producers: Mapping[int, ProducerState]) -> _Log:
        """Created once; who comes second gets the first one's."""
        return self._logs.setdefault((link.partition, link.epoch), _Log(link.base, producers))


class MemoryLoglet:
    def __init__(self, medium: MemoryMedium, link: LinkSpec, clock: Clock) -> None:
        if link.params.get("medium", medium.name) != medium.name:
            raise StoreRefused(
                f"{link.partition}: the records from offset {link.base} on are in the memory of another process, "
                "or of one that has ended: go on there, trim the log beyond them if links follow, or delete the topic"
            )
        self._medium = medium
        self._link = link
        self._clock = clock
        self._turn = asyncio.Lock()
        self._failures = 0

    async def append(self, entry: Entry) -> Offset:
        return await self._append(entry)

    async def append_stored(self, stored: Stored) -> Offset:
        return await self._append(stored)

    async def _append(self, entry: Entry | Stored) -> Offset:
        failures = self._failures
        async with self._turn:
            if failures != self._failures:
                # It may be the next batch of the same producer, which the log would then not know from the first.
                raise StoreUnavailable(f"{self._link.partition}: an append that was called before this one failed")
            try:
                log = await self._open()
                batches = [(entry.header, entry.data)] if isinstance(entry, Entry) else await _fetch(entry)
            except CatenaError as error:
                self._failures += isinstance(error, RetryLater)
                raise
            offset = self._place(log, entry, batches)
        await self._clock.sleep(0)
        return offset

    def _place(self, log: _Log, entry: Entry | Stored, batches: Sequence[tuple[BatchHeader, Buffer]]) -> Offset:
        if log.sealed:
            raise Sealed(f"{self._link.partition}: epoch {self._link.epoch} is sealed at {log.tail}")
        if isinstance(entry, Stored) and self._clock.now_ms() >= entry.not_after_ms:
            raise StaleView(f"{entry.key} comes too late: look again whether its batches are in the log")
        header, offset = entry.header, log.tail
        if header.has_producer:
            state = unexpired(log.producers.get(header.producer_id), self._clock.now_ms())
            check_first(state, header, entry.not_before)
            if (duplicate := find_duplicate(state, header)) is not None:
                return duplicate
            log.producers[header.producer_id] = with_batch(state, header, offset, self._clock.now_ms())
        for each, data in batches:
            log.batches.append(Batch(log.tail, each.count, memoryview(bytes(data))))
        log.wake()
        return offset

    async def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        log = await self._open()
        if offset < log.base:
            raise StaleView(f"{self._link.partition}: offset {offset} was trimmed")
        if offset >= log.tail and log.sealed:
            raise Sealed(f"{self._link.partition}: epoch {self._link.epoch} ends at {log.tail}")
        found: list[Batch] = []
        for batch in log.batches:
            if batch.end <= offset:
                continue
            max_bytes -= len(batch.data)
            if found and max_bytes < 0:
                break
            found.append(batch)
        return found

    async def tail(self) -> Tail:
        log = await self._open()
        return Tail(log.tail, log.sealed)

    async def wait_for_tail(self, beyond: Offset) -> None:
        log = await self._open()
        while log.tail <= beyond and not log.sealed:
            await log.changed.wait()

    async def find_time(self, timestamp_ms: int, start: Offset) -> Offset | None:
        log = await self._open()
        for batch in log.batches:
            if batch.end > start and parse_header(batch.data).max_timestamp >= timestamp_ms:
                return batch.offset
        return None

    async def find_max_time(self, start: Offset, end: Offset | None) -> Offset | None:
        log = await self._open()
        newest, found = NO_TIMESTAMP, None
        for batch in log.batches:
            if batch.end > start and (end is None or batch.offset < end):
                timestamp_ms = parse_header(batch.data).max_timestamp
                if timestamp_ms > newest:
                    newest, found = timestamp_ms, batch.offset
        return found

    async def runs(self, start: Offset, limit: int) -> list[Run]:
        log = await self._open()
        batches = itertools.islice((batch for batch in log.batches if batch.end > start), limit)
        return [Run(batch.end, len(batch.data), parse_header(batch.data).max_timestamp) for batch in batches]

    async def extents(self, start: Offset, end: Offset, limit: int) -> list[Extent]:  # noqa: ARG002
        log = await self._open()
        if start < log.base:
            raise StaleView(f"{self._link.partition}: offset {start} was trimmed")
        if min(start, end - 1) >= log.tail:
            return []
        raise StoreRefused(f"{self._link.partition}: offset {start} is in the memory of a node, and in no object")

    async def seal(self) -> SealResult:
        log = await self._open()
        log.sealed = True
        log.wake()
        await self._clock.sleep(0)
        return SealResult(log.tail, dict(log.producers))

    async def trim(self, offset: Offset) -> None:
        log = await self._open()
        tail = log.tail
        if log.batches and log.batches[0].end <= offset:
            log.batches = [batch for batch in log.batches if batch.end > offset]
            log.base = log.batches[0].offset if log.batches else min(offset, tail)

    async def close(self) -> None:
        pass

    async def _open(self) -> _Log:
        # Others may run here, as they may wherever a disk is touched.
        await self._clock.sleep(0)
        log = self._medium.find(self._link)
        return log if log is not None else self._medium.create(self._link, await self._link.handoff())


async def _fetch(stored: Stored) -> Sequence[tuple[BatchHeader, Buffer]]:
    batches = split_batches(await stored.fetch())
    count = sum(header.count for header, _ in batches)
    if count != stored.header.count:
        raise Corrupt(f"object {stored.key}: {count} records at byte {stored.at}, not {stored.header.count}")
    return batches
