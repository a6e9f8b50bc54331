"""Readers that hammer partitions while they are written, tiered, merged, trimmed and vacuumed, on real stores.

They read from the start over and over, on nodes of their own, with caches and without, and believe what they have seen
for as long as nodes do. Each offset is there once, in order, with its own record, and nobody ever gets an error; only
an offset that somebody has trimmed is out of range. What vacuum deletes was read from the store a moment before.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import pytest

from catena.config import Settings
from catena.embedded import Log, open_log
from catena.errors import ObjectMissing, OffsetOutOfRange
from catena.formats.records import iter_records
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.tiered.loglet import TieredSettings
from catena.node import Node
from catena.objects.base import Blob, ObjectStore, Range
from catena.pipeline.settings import TierSettings, VacuumSettings
from catena.pipeline.tasks.listing import kind_of
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_stores
from catena.testing.faults import Faults, FaultyObjects
from catena.types import Buffer, Offset
from catena.virtual_log.log import VirtualLog
from tests.clients.waiting import until
from tests.pipeline.real_stores import (
    DEADLINE_MS,
    KINDS,
    MERGING,
    SINGLES,
    SQLITE,
    RealDriver,
    check_content,
    check_sound,
    make_settings,
    open_driver,
    value_of,
)

TOPICS = ("a", "b")
RECORDS = 8
"""Before and after what is stored gets old."""
A_MOMENT_S = 1.0
"""Much less than the grace, with the time that plans have."""
READ_BYTES = (1500, 1 << 20)
NO_CACHES = (
    DisklessSettings(tail_cache_bytes=0, blob_cache_bytes=0),
    TieredSettings(cache_bytes=0, index_cache_bytes=0, manifest_cache_bytes=0),
)

CASES = [
    pytest.param(SQLITE, 1, 500),
    *(pytest.param(kind, 12, DEADLINE_MS, marks=[pytest.mark.long, pytest.mark.timeout(600)]) for kind in KINDS),
]


class Watched(FaultyObjects):
    """Knows when each object was last read, and how often one was gone."""

    def __init__(self, store: ObjectStore, story: Story) -> None:
        super().__init__(store, Faults())
        self._story = story

    async def get(self, key: str) -> Blob:
        with self._watching(key):
            return await super().get(key)

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        with self._watching(key):
            return await super().get_ranges(key, ranges)

    @contextmanager
    def _watching(self, key: str) -> Iterator[None]:
        try:
            yield
        except ObjectMissing:
            self._story.missed[str(kind_of(key))] += 1
            raise
        self._story.read_at[key] = time.monotonic()


class Story:
    """What was acked, and what was trimmed."""

    def __init__(self, log: Log, driver: RealDriver, vacuum: VacuumSettings) -> None:
        self._log = log
        self._grace_s = vacuum.grace_ms / 1000
        self._planned_s = vacuum.longest_job_ms / 1000
        self._driver = driver
        self.read_at: dict[str, float] = {}
        self.missed: Counter[str] = Counter()
        """Objects that a reader wanted too late, and so had to find its records elsewhere."""
        self.acked: Offset = 0
        self.trimming: Offset = 0
        """Nothing from here on was given up so far."""
        self.deleted: Counter[str] = Counter()
        """Objects by their kind that were deleted a moment after they were read."""
        self.did: Counter[str] = Counter()
        self.is_over = False

    async def go_on(self, rounds: int) -> None:
        """So many rounds at least, and until vacuum has deleted all kinds of objects that readers were just reading."""
        while rounds > 0 or not self._has_seen_all():
            await self._live_a_round()
            rounds -= 1

    async def _live_a_round(self) -> None:
        """What was there at its beginning is older than the grace at its end, and is deleted as soon as it is moved."""
        await self._write()
        await self._wait(self._grace_s)
        await self._write()
        for settings in (SINGLES, MERGING):
            await self._tier(settings)
            await self._wait(self._planned_s)  # what was replaced stays for as long as a plan may name it
            await self._vacuum()
        await self._trim()

    async def _wait(self, seconds: float) -> None:
        """By the real clock: the store dates its objects itself."""
        over = time.monotonic() + seconds
        await asyncio.to_thread(until, lambda: time.monotonic() > over, "what is stored is old")

    async def _write(self) -> None:
        for number in range(self.acked, self.acked + RECORDS):
            offsets = await asyncio.gather(*(self._log.append(topic, value_of(topic, number)) for topic in TOPICS))
            assert offsets == [number] * len(TOPICS)
            self.acked = number + 1

    async def _tier(self, settings: TierSettings) -> None:
        for report in await self._driver.tier(settings):
            assert report.outcome in ("tiered", "idle"), report
            self.did += Counter(runs=report.runs, merged=report.merged, dropped=report.dropped)

    async def _trim(self) -> None:
        self.trimming = self.acked - RECORDS
        for topic in TOPICS:
            assert await self._log.trim(topic, self.trimming) == self.trimming

    async def _vacuum(self) -> None:
        began = time.monotonic()
        report = await self._driver.vacuum()
        assert (report.failed, report.deleted.objects) == (0, len(report.first_keys))
        since = began - self._planned_s - A_MOMENT_S
        self.deleted += Counter(str(kind_of(key)) for key in report.first_keys if self.read_at.get(key, 0) > since)

    def _has_seen_all(self) -> bool:
        did_all = min(self.did[what] for what in ("runs", "merged", "dropped")) > 0
        did_delete = min(self.deleted[kind] for kind in ("wal", "segment", "manifest")) > 0
        return did_all and did_delete and self.missed["wal"] + self.missed["segment"] > 0


class Reader:
    def __init__(self, story: Story, log: VirtualLog, max_bytes: int) -> None:
        self._story = story
        self._log = log
        self._max_bytes = max_bytes
        self.rounds = 0

    async def go_on(self) -> None:
        """From the start to the tail, over and over. Only who is told that a place is trimmed asks for the start."""
        start = await self._log.start()
        while not self._story.is_over or self.rounds == 0:
            acked, tail = self._story.acked, await self._log.tail()
            assert tail >= acked
            start, _ = await self._read(start, tail)
            self.rounds += 1

    async def follow(self) -> None:
        """From the start to the tail, and on from there."""
        offset = await self._log.start()
        while not self._story.is_over or offset < self._story.acked:
            _, offset = await self._read(offset, await self._log.tail())
            await self._log.wait_for_tail(offset, 0.1)

    async def _read(self, start: Offset, end: Offset) -> tuple[Offset, Offset]:
        """The first offset that was there, and the one after the last."""
        offset = start
        while offset < end:
            try:
                batches = await self._log.read(offset, self._max_bytes)
            except OffsetOutOfRange:
                assert offset < self._story.trimming, "it was not trimmed"
                start = offset = await self._log.start()
                assert start <= self._story.trimming
                continue
            assert batches, f"nothing at {offset}, and the log reaches to {end}"
            for batch in batches:
                for record in iter_records(batch.data, batch.offset):
                    if record.offset >= start:  # the start may be within a batch
                        assert record.offset == offset
                        assert record.value == value_of(self._log.tp.topic, offset).encode()
                        offset += 1
        return start, offset


@asynccontextmanager
async def open_readers(settings: Settings, story: Story) -> AsyncIterator[tuple[list[Reader], list[Reader]]]:
    """Those that begin again and those that follow, on two nodes: one has caches as nodes have them, the other has none
    and asks the store for everything."""
    diskless, tiered = NO_CACHES
    bare = msgspec.structs.replace(settings, diskless=diskless, tiered=tiered)
    readers: list[Reader] = []
    followers: list[Reader] = []
    async with AsyncExitStack() as opened:
        for each in (settings, bare):
            clock, entropy = SystemClock(), SystemEntropy()
            stores = await opened.enter_async_context(open_stores(each, clock, entropy))
            node = await Node.start(each, stores.meta, Watched(stores.objects, story), clock, entropy)
            opened.push_async_callback(node.close)
            logs = [await node.log(topic, 0) for topic in TOPICS]
            readers += [Reader(story, log, max_bytes) for max_bytes in READ_BYTES for log in logs]
            followers.append(Reader(story, logs[0], READ_BYTES[-1]))
        yield readers, followers


@pytest.fixture
def settings(
    kind: str, deadline_ms: int, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    return make_settings(kind, tmp_path, request, monkeypatch, deadline_ms)


@pytest.mark.parametrize(("kind", "rounds", "deadline_ms"), CASES)
async def test_every_offset_is_seen_once_and_never_an_error(settings: Settings, rounds: int) -> None:
    async with open_log(settings) as log, open_driver(settings) as driver:
        for topic in TOPICS:
            await log.create_topic(topic)
        story = Story(log, driver, settings.pipeline.vacuum)
        # Whoever fails first ends it.
        async with open_readers(settings, story) as (readers, followers), asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.go_on())
            for reader in followers:
                group.create_task(reader.follow())
            await story.go_on(rounds)
            story.is_over = True
    assert min(reader.rounds for reader in readers) > 1
    await check_content(settings, TOPICS, story.trimming, story.acked)
    await check_sound(settings)
