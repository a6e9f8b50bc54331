"""Retention by nodes: what a topic need not keep any longer (`catena.virtual_log.retention`) is trimmed.

Each node looks after the partitions that it leads by placement. That only spreads the work: a trim is linearizable and
only goes forward, so two nodes that look after the same partition while leaders move do no harm, nor does a partition
that nobody looks after for a round. Before anything is trimmed the topic is read anew: who gives a
topic a longer retention loses nothing by a node that has not heard of it.

A round takes `every_ms`, and its work is spread over that time, a few partitions at once. What was seen of a partition
is remembered, so that most cost nothing: by time nothing can go before the oldest run is due, and by size only new
runs are counted. What is lost with a restart or a change of leaders is seen anew.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Annotated

import msgspec

from catena.broker.base import OpenLog
from catena.cluster.membership import Membership
from catena.cluster.placement import PartitionOf
from catena.errors import CatenaError, RetryLater, StoreRefused, UnknownTopic
from catena.runtime import Clock, Entropy, Tasks
from catena.runtime.tasks import map_bounded
from catena.types import TopicId
from catena.virtual_log.retention import Seen, count, drop, is_limited, is_quiet
from catena.virtual_log.topic_configs import settings_of
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord

log = logging.getLogger(__name__)

SLICE = 64
"""Partitions that are looked at in one go; then there is a pause."""
AT_ONCE = 4


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    every_ms: Annotated[int, msgspec.Meta(ge=1000, le=24 * 3600 * 1000)] = 300_000
    """How often each partition is looked at."""


class Retention:
    def __init__(
        self,
        membership: Membership,
        view: TopicView,
        open_log: OpenLog,
        clock: Clock,
        entropy: Entropy,
        settings: RetentionSettings,
    ) -> None:
        self._membership = membership
        self._view = view
        self._open_log = open_log
        self._clock = clock
        self._entropy = entropy
        self._every_s = settings.every_ms / 1000
        self._tasks = Tasks("retention")
        self._seen: dict[tuple[TopicId, int], Seen] = {}
        self._trouble: str | None = None
        self._trimmed = self._failed = 0
        self.trimmed = 0
        """Partitions of which something was trimmed; one counts each time."""
        self.last_round_at_ms: int | None = None
        """When the last round ended in which all could be looked at."""

    async def start(self) -> None:
        self._tasks.spawn("rounds", self._run())

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self) -> None:
        # A node that starts has better things to do, and those that were started together do not go round together.
        await self._clock.sleep(self._every_s * (1 + self._entropy.jitter()) / 2)
        while True:
            await self.round(self._every_s)

    async def round(self, over_s: float) -> None:
        """Look at all partitions once, in the course of so many seconds."""
        topics = [topic for topic in self._view.all() if is_limited(settings_of(topic.configs))]
        slices = -(-sum(topic.partitions for topic in topics) // SLICE)
        partitions = ((topic, number) for topic in topics for number in range(topic.partitions))
        before, self._seen = self._seen, {}
        self._trimmed = self._failed = 0
        for _ in range(slices):
            # What is not looked at in this round, as others lead it by now, is forgotten.
            led = self._led(list(itertools.islice(partitions, SLICE)))
            for topic, number in led:
                key = (topic.topic_id, number)
                if key in before:
                    self._seen[key] = before.pop(key)
            await map_bounded(AT_ONCE, self._visit, led)
            await self._clock.sleep(over_s / slices)
        if not slices:
            await self._clock.sleep(over_s)
        if not self._failed:
            self.last_round_at_ms = self._clock.now_ms()
        if self._trimmed:
            log.info("retention trimmed logs", extra={"partitions": self._trimmed})

    def _led(self, partitions: Sequence[tuple[TopicRecord, int]]) -> list[tuple[TopicRecord, int]]:
        node_id, leader = self._membership.node_id, self._membership.last_view.placement.leader
        return [
            (topic, number)
            for topic, number in partitions
            if leader(PartitionOf(topic.topic_id, number, topic.partitions)) == node_id
        ]

    async def _visit(self, item: tuple[TopicRecord, int]) -> None:
        topic, number = item
        current = self._view.cached(topic.name)
        if current is None or current.topic_id != topic.topic_id:
            return
        try:
            await self._obey(current, number)
        except (UnknownTopic, StoreRefused):
            # It was deleted; or it has records in the memory of another node, which is for tests.
            self._seen.pop((topic.topic_id, number), None)
        except CatenaError as error:
            # What was seen may be half of the truth by now.
            self._seen.pop((topic.topic_id, number), None)
            self._failed += 1
            self._say(error)
        else:
            self._trouble = None

    async def _obey(self, topic: TopicRecord, number: int) -> None:
        settings, now_ms = settings_of(topic.configs), self._clock.now_ms()
        key = (topic.topic_id, number)
        if not is_limited(settings):
            return
        seen, partition = self._seen.get(key), self._open_log(topic, number)
        if seen is not None and await is_quiet(partition, seen, settings, now_ms):
            return
        start = await partition.start()
        if seen is None or seen.start != start:
            seen = self._seen[key] = Seen(start)
        if settings.retention_bytes is not None:
            await count(partition, seen)
        await drop(partition, seen, settings, now_ms)
        if seen.start > start:
            latest = await self._view.read(topic.name)
            if latest.topic_id != topic.topic_id or settings_of(latest.configs) != settings:
                del self._seen[key]  # the next round goes by what is new
                return
            await partition.trim(seen.start)
            self._trimmed += 1
            self.trimmed += 1
            log.debug("%s: trimmed from %d to %d", partition.tp, start, seen.start)

    def _say(self, error: CatenaError) -> None:
        """Once for each kind of trouble: not again with every partition."""
        kind = type(error).__name__
        if kind != self._trouble:
            self._trouble = kind
            level = logging.WARNING if isinstance(error, RetryLater) else logging.ERROR
            log.log(level, "retention has to wait: %s: %s", kind, error)
