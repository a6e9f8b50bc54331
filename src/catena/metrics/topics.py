"""Topics: how long their chains are, where the boundary lies, and how much they hold.

Each node tells of the partitions that it leads by placement, so that those who add up all nodes count each once. Of a
log that was used here it knows the chain and the tail without asking. Beyond that it looks at `LOOKS` partitions with
each refresh, one after the other in rounds, for what others have written and for sizes: so what is told of a partition
that is not used here may be a round old. The stores are asked for no more than that, however many partitions there are.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence

import msgspec

from catena.broker.base import OpenLog
from catena.cluster.membership import Membership
from catena.cluster.placement import PartitionOf
from catena.errors import CatenaError
from catena.metrics.others import first_and_others
from catena.runtime import Clock
from catena.runtime.tasks import map_bounded
from catena.types import TopicId
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.sizes import estimated_size
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord

LOOKS = 100
LOOKS_APART = 5
"""Where each record is a request of its own, as in object storage."""
AT_ONCE = 16
SLICE = 500
"""Partitions that are added up in one go; then others have their turn."""


class TopicFigures(msgspec.Struct):
    """Of the partitions that this node leads."""

    partitions: int = 0
    looked_at: int = 0
    """Of these; the rest is not in the other figures."""
    records: int = 0
    """Offsets, from the start to the tail."""
    bytes: int = 0
    """About."""
    untiered_records: int = 0
    """Offsets beyond the boundary."""
    links: int = 0
    """Of the longest chain."""
    epoch: int = 0
    """The highest."""
    sealed: int = 0
    """Partitions that take no appends."""
    topics: int = 1
    """That this stands for."""

    def add(self, other: TopicFigures) -> None:
        self.partitions += other.partitions
        self.looked_at += other.looked_at
        self.records += other.records
        self.bytes += other.bytes
        self.untiered_records += other.untiered_records
        self.links = max(self.links, other.links)
        self.epoch = max(self.epoch, other.epoch)
        self.sealed += other.sealed
        self.topics += other.topics


class TopicLooks:
    def __init__(
        self, membership: Membership, view: TopicView, open_log: OpenLog, clock: Clock, looks: int, shown: int
    ) -> None:
        """`shown`: so many topics are told of one by one, the largest ones."""
        self._membership = membership
        self._view = view
        self._open_log = open_log
        self._clock = clock
        self._looks = looks
        self._shown = shown
        self._next = 0
        self._sizes: dict[tuple[TopicId, int], tuple[int, int]] = {}
        """Offsets of a log, and their bytes, when it was last looked at."""

    async def look(self) -> dict[str, TopicFigures]:
        led = [item async for item in self._led()]
        await self._look_at_some(led)
        found: dict[str, TopicFigures] = {}
        for start in range(0, len(led), SLICE):
            for topic, number in led[start : start + SLICE]:
                self._add(found.setdefault(topic.name, TopicFigures()), self._open_log(topic, number))
            await self._clock.sleep(0)
        return first_and_others(
            found, self._shown, lambda topic: (-topic.bytes, -topic.records), TopicFigures(topics=0)
        )

    async def _led(self) -> AsyncIterator[tuple[TopicRecord, int]]:
        node_id, leader = self._membership.node_id, self._membership.last_view.placement.leader
        seen = 0
        for topic in self._view.last_all():
            for number in range(topic.partitions):
                if leader(PartitionOf(topic.topic_id, number, topic.partitions)) == node_id:
                    yield topic, number
                seen += 1
                if seen % SLICE == 0:
                    await self._clock.sleep(0)

    async def _look_at_some(self, led: Sequence[tuple[TopicRecord, int]]) -> None:
        keys = {(topic.topic_id, number) for topic, number in led}
        self._sizes = {key: size for key, size in self._sizes.items() if key in keys}
        count = min(self._looks, len(led))
        some = list(itertools.islice(itertools.cycle(led), self._next, self._next + count))
        self._next = (self._next + count) % max(1, len(led))
        await map_bounded(AT_ONCE, self._look_at, some)

    async def _look_at(self, item: tuple[TopicRecord, int]) -> None:
        topic, number = item
        log, key = self._open_log(topic, number), (topic.topic_id, number)
        try:
            start, tail = await log.start(), await log.tail()
            known = self._sizes.get(key)
            if known is None or known[0] != tail - start:
                self._sizes[key] = (tail - start, await estimated_size(log, tail))
        except CatenaError:
            self._sizes.pop(key, None)  # deleted, or away: the next round tells

    def _add(self, figures: TopicFigures, log: VirtualLog) -> None:
        figures.partitions += 1
        chain = log.seen_chain
        if chain is None:
            return
        records = max(0, log.seen_tail - chain.start)
        figures.looked_at += 1
        figures.records += records
        figures.untiered_records += max(0, log.seen_tail - chain.boundary)
        figures.links = max(figures.links, len(chain.links))
        figures.epoch = max(figures.epoch, chain.last.epoch)
        figures.sealed += not chain.last.is_open
        counted, size = self._sizes.get((log.tp.topic_id, log.tp.partition), (0, 0))
        figures.bytes += size * records // counted if counted else 0
