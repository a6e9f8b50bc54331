"""One pass of compaction over the topics that ask for it; see `catena.pipeline.compact`."""

from __future__ import annotations

from collections.abc import Callable

from catena.config import Settings
from catena.errors import ConfigError
from catena.jobs.opening import EVERYTHING, OpenWork, Which, find_places, note_run, on_spark, open_site
from catena.pipeline.compact import CompactPlace
from catena.pipeline.compact_pass import CompactPass, plan_all
from catena.pipeline.report import CompactRunReport
from catena.pipeline.site import Site
from catena.pipeline.tier_pass import Progress
from catena.pipeline.work import Executor, Usage, used
from catena.runtime import SystemClock, SystemEntropy
from catena.virtual_log.topic_configs import settings_of
from catena.virtual_log.topics import list_topics


async def find_compacted(site: Site, which: Which, is_asked_for: bool = True) -> list[CompactPlace]:
    """Partitions of topics that are to be compacted. Raises UnknownTopic, UnknownPartition, and ConfigError if it is
    asked for by name and is not."""
    places = await find_places(site, which)
    topics = {topic.topic_id: settings_of(topic.configs) for topic in await list_topics(site.meta)}
    # A topic may be deleted between the two.
    found = [CompactPlace(place, topics[place.tp.topic_id]) for place in places if place.tp.topic_id in topics]
    compacted = [where for where in found if where.topic.compact]
    if is_asked_for and which.topic is not None and found and not compacted:
        raise ConfigError(
            f"topic {which.topic} is not compacted: `catena topic config {which.topic} cleanup.policy=compact` "
            "switches it on"
        )
    return compacted


async def compact(
    settings: Settings,
    which: Which = EVERYTHING,
    dry_run: bool = False,
    open_work: OpenWork | None = None,
    show: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    is_asked_for: bool = True,
) -> CompactRunReport:
    """Over the partitions that are asked for, or that a service is for.

    Without work to do Spark is not even started: it takes longer.
    """
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_site(settings, clock, entropy) as (site, requests):
        started_at_ms, before = clock.now_ms(), requests.snapshot()
        places = await find_compacted(site, which, is_asked_for)
        planned = await plan_all(site, places, settings.pipeline.compact)
        reports, usage = planned, dict[Executor, Usage]()
        if not dry_run and any(each.outcome != "idle" for each in planned):
            async with (open_work or on_spark(settings))() as work:
                doing = CompactPass(site, work, settings.pipeline.compact, show, should_stop)
                reports, usage = await doing.run(places), dict(work.usage)
        said = tuple(each for each in reports if each.outcome != "idle")
        report = CompactRunReport(
            job="compact",
            started_at_ms=started_at_ms,
            duration_ms=clock.now_ms() - started_at_ms,
            dry_run=dry_run,
            partitions=said,
            idle=len(reports) - len(said),
            executors={str(executor): each for executor, each in usage.items()},
            driver=used(before, requests.snapshot(), 0),
        )
        is_good = not dry_run and not report.failed and not should_stop()
        await note_run(site, "compact", which, report.duration_ms, is_good)
        return report
