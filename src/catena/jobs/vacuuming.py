"""Delete the objects that nothing refers to; see `catena.pipeline.vacuum`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from catena.config import Settings
from catena.jobs.opening import EVERYTHING, OpenWork, note_run, on_spark, open_site
from catena.pipeline.vacuum import VacuumProgress, VacuumReport, check_grace
from catena.pipeline.vacuum import vacuum as run_vacuum
from catena.pipeline.work import used
from catena.runtime import SystemClock, SystemEntropy


def check_vacuum(settings: Settings) -> None:
    """Raise ConfigError if the grace is too short. The writers of other nodes are taken to have the same deadline as
    these settings say."""
    check_grace(settings.pipeline.vacuum, settings.diskless.writer.commit_deadline_ms)


async def vacuum(
    settings: Settings,
    dry_run: bool = False,
    open_work: OpenWork | None = None,
    show: Callable[[VacuumProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> VacuumReport:
    check_vacuum(settings)
    async with (
        open_site(settings, SystemClock(), SystemEntropy()) as (site, requests),
        (open_work or on_spark(settings))() as work,
    ):
        before = requests.snapshot()
        report = await run_vacuum(site, work, settings.pipeline.vacuum, dry_run, show, should_stop)
        is_good = not dry_run and not report.failed and not report.stopped
        await note_run(site, "vacuum", EVERYTHING, report.duration_ms, is_good)
        return msgspec.structs.replace(report, driver=used(before, requests.snapshot(), 0))
