"""All topics as this node last saw them, so that the hot path asks no store.

What is cached is served as it is. A name that is not cached is looked up in the store before it is called unknown, so a
topic that was created on one node is there on all. Those who ask for the same name at the same time share a read; it
begins after they asked, so it can't miss what was there by then.

A watch tells that something about topics has changed, but not what; so all are scanned again, with a pause in between
that keeps scans from taking more than a small part of the time. Only records whose version is new are decoded. Hints
get lost, so there is a scan every `refresh_ms` too: that bounds how old the cache can be. While nobody looks at it
there are fewer (`runtime.refresher`): on some stores they cost money. A store that is away leaves the cache as it is.
What is in it may be wrong then, and for a moment after each change: whoever notices (an append says that the topic is
gone, a partition is asked for that should not be there) calls `forget`, and asks again.

Scans and reads of single names overlap, and versions do not tell which is newer. So what both have found at the same
time, and found different, is read once more, by a read that begins after both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Generic, TypeVar

import msgspec

from catena.errors import CatenaError, Corrupt, UnknownTopic
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.runtime import Clock, Tasks
from catena.runtime.refresher import Refresher, Revision
from catena.types import TopicId, Version
from catena.virtual_log.topics import TopicRecord, check_name, decode_topic

log = logging.getLogger(__name__)

T = TypeVar("T")

READS_AT_ONCE = 32
MAX_READS = 3
"""Of one name, until nobody else has found something new meanwhile."""
PAUSE_FACTOR = 10
"""Scans take one part in so many of the time at the most."""


class TopicViewSettings(msgspec.Struct, frozen=True):
    refresh_ms: int = 5_000
    scan_pause_ms: int = 50
    """Between the start of two scans, at least."""


class SharedRead(Generic[T]):
    """A read that many ask for. Each gets the outcome of one that began after it asked, and shares it if it can."""

    def __init__(self, read: Callable[[], Awaitable[T]], pause: Callable[[], Awaitable[None]] | None = None) -> None:
        """`pause` is made before each read; those who ask in the meantime share the read as well."""
        self._read = read
        self._pause = pause
        self._turn = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._outcome: T | CatenaError
        self.waiting = 0

    async def fresh(self) -> T:
        self._asked += 1
        number = self._asked
        self.waiting += 1
        try:
            async with self._turn:
                if self._answered < number:
                    await self._make()
                outcome = self._outcome
        finally:
            self.waiting -= 1
        if isinstance(outcome, CatenaError):
            raise outcome
        return outcome

    async def _make(self) -> None:
        if self._pause is not None:
            await self._pause()
        asked_before = self._asked
        try:
            self._outcome = await self._read()
        except CatenaError as error:
            self._outcome = error
        self._answered = asked_before


class TopicView:
    """Usable from `start` to `close`; one for each node."""

    def __init__(self, meta: MetaStore, clock: Clock, settings: TopicViewSettings | None = None) -> None:
        self._meta = meta
        self._clock = clock
        self._settings = settings or TopicViewSettings()
        self._by_name: dict[str, TopicRecord] = {}
        self._by_id: dict[TopicId, TopicRecord] = {}
        self._versions: dict[str, Version] = {}
        """Of all records, those of deleted topics included."""
        self._suspect: dict[str, None] = {}
        """Names whose topics are shown to those who list them, but read again for those who use them."""
        self._all: tuple[TopicRecord, ...] | None = ()
        self._reads: dict[str, SharedRead[None]] = {}
        self._slots = asyncio.Semaphore(READS_AT_ONCE)
        self._scan = SharedRead(self._scan_all, self._pause)
        self._next_scan = self._clock.monotonic()
        self._overtaken: dict[str, None] | None = None
        """While a scan is under way, the names that were read or forgotten since it began."""
        self._revision = Revision()
        self._has_changed = False
        self._tasks = Tasks("view of the topics")
        self._watch = meta.watch(keys.TOPICS)
        self._refresher: Refresher | None = None

    async def start(self) -> None:
        """Returns once all topics that are there have been seen."""
        await self.refresh()
        every_s = self._settings.refresh_ms / 1000
        self._refresher = Refresher(
            "view of the topics",
            self._clock,
            self._tasks,
            every_s,
            self._watch.changed,
            self.refresh,
            is_urgent=lambda: False,
        )

    async def close(self) -> None:
        await self._tasks.close()
        self._watch.close()

    @property
    def revision(self) -> int:
        """Goes up with each change that is seen."""
        return self._revision.number

    async def changed(self, since: int) -> int:
        """The revision, as soon as it is above `since`."""
        await self._revision.beyond(since)
        return self._revision.number

    def cached(self, name: str) -> TopicRecord | None:
        self._used()
        return None if name in self._suspect else self._by_name.get(name)

    def cached_by_id(self, topic_id: TopicId) -> TopicRecord | None:
        self._used()
        topic = self._by_id.get(topic_id)
        return None if topic is None or topic.name in self._suspect else topic

    def all(self) -> Sequence[TopicRecord]:
        """By name, as the last scan and what was read since have it."""
        self._used()
        return self.last_all()

    def last_all(self) -> Sequence[TopicRecord]:
        """The same, for those for whom older ones are good enough: to look at them keeps nobody at work."""
        if self._all is None:
            self._all = tuple(self._by_name[name] for name in sorted(self._by_name))
        return self._all

    async def get(self, name: str) -> TopicRecord:
        """The topic as it is cached, or as it is now; UnknownTopic if there is none now."""
        return self.cached(name) or await self.read(name)

    async def read(self, name: str) -> TopicRecord:
        """The topic as it is now."""
        check_name(name)
        shared = self._reads.get(name)
        if shared is None:
            shared = self._reads[name] = SharedRead(lambda: self._read_one(name))
        try:
            await shared.fresh()
        finally:
            if not shared.waiting:
                self._reads.pop(name, None)
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    async def by_id(self, topic_id: TopicId) -> TopicRecord:
        """The topic as it is cached, or as a scan has it that began after this call; UnknownTopic if it has none."""
        topic = self.cached_by_id(topic_id)
        if topic is None:
            await self.refresh()
            topic = self._by_id.get(topic_id)
            if topic is None:
                raise UnknownTopic(topic_id)
        return topic

    def forget(self, name: str) -> None:
        """It may have changed: read it again when it is asked for next."""
        if name in self._by_name:
            self._suspect[name] = None
            self._note(name)

    async def refresh(self) -> None:
        """See everything that was there when this was called."""
        await self._scan.fresh()

    def _used(self) -> None:
        if self._refresher is not None:
            self._refresher.used()

    async def _read_one(self, name: str) -> None:
        record: Record | None = None
        async with self._slots:
            for _ in range(MAX_READS):
                before = self._versions.get(name)
                record = await self._meta.get(keys.topic(name))
                if self._versions.get(name) == before:
                    break
        self._note(name)
        # Decoded in any case, so that whoever asks for one that can't be is told why.
        topic = None if record is None else decode_topic(record)
        self._set(name, topic, None if record is None else record.version)
        self._publish()

    async def _pause(self) -> None:
        pause_s = self._next_scan - self._clock.monotonic()
        if pause_s > 0:
            await self._clock.sleep(pause_s)

    async def _scan_all(self) -> None:
        began = self._clock.monotonic()
        overtaken = self._overtaken = {}
        try:
            seen = await self._scan_pages(overtaken)
        finally:
            self._overtaken = None
            took = self._clock.monotonic() - began
            self._next_scan = began + max(self._settings.scan_pause_ms / 1000, PAUSE_FACTOR * took)
        for name in [name for name in self._versions if name not in seen and name not in overtaken]:
            self._set(name, None, None)
        self._publish()
        for name in overtaken:
            if seen.get(name) != self._versions.get(name):
                await self._read_one(name)

    async def _scan_pages(self, overtaken: Container[str]) -> dict[str, Version]:
        """Take over what is new, but for those that were overtaken; returns the versions of all."""
        seen: dict[str, Version] = {}
        start, end = keys.TOPICS, keys.after(keys.TOPICS)
        while page := await self._meta.scan(start, end):
            for record in page:
                name = record.key.removeprefix(keys.TOPICS)
                seen[name] = record.version
                if name not in overtaken:
                    self._see(name, record)
            self._publish()
            start = page[-1].key + "\0"
        return seen

    def _note(self, name: str) -> None:
        if self._overtaken is not None:
            self._overtaken[name] = None

    def _see(self, name: str, record: Record) -> None:
        if self._versions.get(name) == record.version:
            self._suspect.pop(name, None)
            return
        try:
            topic = decode_topic(record)
        except Corrupt as error:
            # One that can't be read must not hide all the others.
            log.error("a topic is passed over: %s", error)
            self._set(name, None, record.version)
        else:
            self._set(name, topic, record.version)

    def _set(self, name: str, topic: TopicRecord | None, version: Version | None) -> None:
        self._suspect.pop(name, None)
        if version is None:
            self._versions.pop(name, None)
        else:
            self._versions[name] = version
        if topic is not None and topic.state != "ACTIVE":
            topic = None
        old = self._by_name.pop(name, None)
        if old is not None:
            self._by_id.pop(old.topic_id, None)
        if topic is not None:
            self._by_name[name] = topic
            self._by_id[topic.topic_id] = topic
        if old != topic:
            self._all = None
            self._has_changed = True

    def _publish(self) -> None:
        if self._has_changed:
            self._has_changed = False
            self._revision.advance()
