"""Trim what the topics' configs no longer ask to keep; see `catena.pipeline.retention`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from catena.config import Settings
from catena.jobs.opening import EVERYTHING, Which, find_places, note_run, open_site
from catena.node import Node
from catena.pipeline.retention import Kept, Trimmed, trim_all
from catena.pipeline.site import Site
from catena.runtime import SystemClock, SystemEntropy
from catena.virtual_log.topics import list_topics

GROUP = 500
"""After so many partitions `should_stop` is asked."""


class RetentionReport(msgspec.Struct, frozen=True):
    job: str
    started_at_ms: int
    duration_ms: int
    dry_run: bool
    partitions: tuple[Trimmed, ...]
    stopped: bool = False
    """Before all partitions were looked at, because somebody asked for it."""

    @property
    def failed(self) -> int:
        return sum(bool(each.error) for each in self.partitions)


async def retention(settings: Settings, which: Which = EVERYTHING, dry_run: bool = False) -> RetentionReport:
    async with open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
        report = await retention_on(site, settings, which, dry_run)
        await note_run(site, "retention", which, report.duration_ms, not dry_run and not report.failed)
        return report


async def retention_on(
    site: Site,
    settings: Settings,
    which: Which = EVERYTHING,
    dry_run: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> RetentionReport:
    started_at_ms = site.clock.now_ms()
    node = await Node.start(settings, site.meta, site.objects, site.clock, site.entropy)
    try:
        places = await find_places(site, which)
        topics = {topic.topic_id: topic for topic in await list_topics(site.meta)}
        # A topic may be deleted between the two.
        known = [(topics[place.tp.topic_id], place.tp.partition) for place in places if place.tp.topic_id in topics]
        trimmed: list[Trimmed] = []
        stopped = False
        for start in range(0, len(known), GROUP):
            if stopped := should_stop():
                break
            group = [Kept(topic, node.open_log(topic, partition)) for topic, partition in known[start : start + GROUP]]
            trimmed += await trim_all(group, node.topics.get, site.clock, dry_run)
    finally:
        await node.close()
    duration_ms = site.clock.now_ms() - started_at_ms
    return RetentionReport("retention", started_at_ms, duration_ms, dry_run, tuple(trimmed), stopped)
