"""One pass of tiering; see `catena.pipeline.tier`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from catena.config import Settings
from catena.jobs.opening import EVERYTHING, MAX_OFFSET, OpenWork, Which, find_places, note_run, on_spark, open_site
from catena.pipeline.report import RunReport
from catena.pipeline.tier_pass import Progress, TierPass, plan_all
from catena.pipeline.work import Executor, Usage, used
from catena.runtime import SystemClock, SystemEntropy
from catena.types import Offset


async def tier(
    settings: Settings,
    which: Which = EVERYTHING,
    force_up_to: Offset | None = None,
    dry_run: bool = False,
    open_work: OpenWork | None = None,
    show: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunReport:
    """Over the partitions that are asked for. Without work to do Spark is not even started: it takes longer."""
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_site(settings, clock, entropy) as (site, requests):
        started_at_ms, before = clock.now_ms(), requests.snapshot()
        places = await find_places(site, which)
        # Nobody works yet: what is planned here shows whether there is any work at all.
        planned = await plan_all(site, places, settings.pipeline.tier, force_up_to)
        reports, usage = planned, dict[Executor, Usage]()
        if not dry_run and any(each.outcome != "idle" for each in planned):
            async with (open_work or on_spark(settings))() as work:
                doing = TierPass(site, work, settings.pipeline.tier, force_up_to, show, should_stop)
                reports, usage = await doing.run(places), dict(work.usage)
        said = tuple(each for each in reports if each.outcome != "idle")
        report = RunReport(
            job="tier",
            started_at_ms=started_at_ms,
            duration_ms=clock.now_ms() - started_at_ms,
            dry_run=dry_run,
            partitions=said,
            idle=len(reports) - len(said),
            executors={str(executor): each for executor, each in usage.items()},
            driver=used(before, requests.snapshot(), 0),
        )
        # One that was told to stop may have left some.
        is_good = not dry_run and not report.failed and not should_stop()
        await note_run(site, "tier", which, report.duration_ms, is_good)
        return report


def compact_once(settings: Settings, topic: str, partition: int) -> RunReport:
    """All of one partition that can be tiered now, whatever its age, on this machine: for debugging and recovery."""
    return asyncio.run(tier(settings, Which(topic, partition), MAX_OFFSET))
