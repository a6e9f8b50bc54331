"""Trim what the topics' configs no longer ask to keep; see `catena.pipeline.retention`."""

from __future__ import annotations

import msgspec

from catena.config import Settings
from catena.jobs.opening import EVERYTHING, Which, find_places, open_site
from catena.node import Node
from catena.pipeline.retention import Kept, Trimmed, trim_all
from catena.runtime import SystemClock, SystemEntropy
from catena.virtual_log.topics import list_topics


class RetentionReport(msgspec.Struct, frozen=True):
    job: str
    started_at_ms: int
    duration_ms: int
    dry_run: bool
    partitions: tuple[Trimmed, ...]

    @property
    def failed(self) -> int:
        return sum(bool(each.error) for each in self.partitions)


async def retention(settings: Settings, which: Which = EVERYTHING, dry_run: bool = False) -> RetentionReport:
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_site(settings, clock, entropy) as (site, _):
        started_at_ms = clock.now_ms()
        node = await Node.start(settings, site.meta, site.objects, clock, entropy)
        try:
            topics = {topic.topic_id: topic for topic in await list_topics(site.meta)}
            kept = [
                Kept(topics[place.tp.topic_id], node.open_log(topics[place.tp.topic_id], place.tp.partition))
                for place in await find_places(site, which)
            ]
            trimmed = await trim_all(kept, node.topics.get, clock, dry_run)
        finally:
            await node.close()
        return RetentionReport("retention", started_at_ms, clock.now_ms() - started_at_ms, dry_run, tuple(trimmed))
