"""Look whether all that is stored is sound; see `catena.pipeline.audit`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from catena.config import Settings
from catena.jobs.opening import EVERYTHING, OpenWork, Which, find_places, on_spark, open_site
from catena.pipeline.audit import AuditReport, Orphans
from catena.pipeline.audit import audit as run_audit
from catena.pipeline.tier_pass import Progress
from catena.pipeline.vacuum import vacuum
from catena.pipeline.work import used
from catena.runtime import SystemClock, SystemEntropy


async def audit(
    settings: Settings,
    which: Which = EVERYTHING,
    open_work: OpenWork | None = None,
    show: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> AuditReport:
    """Orphans are counted when all partitions are looked at: they belong to none."""
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_site(settings, clock, entropy) as (site, requests), (open_work or on_spark(settings))() as work:
        before = requests.snapshot()

        async def count_orphans() -> Orphans:
            found = await vacuum(site, work, settings.pipeline.vacuum, dry_run=True)
            return Orphans(
                sum(amount.objects for amount in found.orphans.values()),
                sum(amount.bytes for amount in found.orphans.values()),
            )

        report = await run_audit(
            site,
            work,
            await find_places(site, which),
            settings.pipeline.audit,
            show,
            should_stop,
            count_orphans if which == EVERYTHING else None,
        )
        return msgspec.structs.replace(report, driver=used(before, requests.snapshot(), 0))
