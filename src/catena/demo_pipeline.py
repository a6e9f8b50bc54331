"""The second half of the demo: what was appended is tiered on Spark, vacuumed and audited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from catena import jobs
from catena.cli.chain import draw
from catena.cli.output import count
from catena.config import Settings
from catena.demo_tables import DemoTables, WrongAnswer
from catena.embedded import Log
from catena.errors import ConfigError
from catena.objects.base import ObjectInfo
from catena.pipeline import tier_pass
from catena.pipeline.settings import PipelineSettings, VacuumSettings
from catena.pipeline.spark.work import open_spark_work
from catena.pipeline.work import Work
from catena.runtime import SystemClock
from catena.store_spec import StoreSpec
from catena.tables.tasks import run_task

GRACE_S = 4.0
"""So short only here, where all writers are known to be done; a day is usual."""


async def tier_vacuum_and_audit(
    log: Log, settings: Settings, topic: str, console: Console, verify: Callable[[], Awaitable[None]]
) -> None:
    """`verify` reads all records, and compares them."""
    clock = SystemClock()
    settings = with_short_grace(settings)

    def title(number: int, text: str) -> None:
        console.print(f"\n[bold cyan]{number}[/bold cyan] [bold]{text}[/bold]")

    def say(text: str) -> None:
        console.print(f"  {text}", highlight=False)

    async def draw_chain() -> None:
        chain, tail = await log.chain(topic), await log.tail(topic)
        for line in draw(f"{topic}/0", chain, tail):
            say(f"  {line}")

    title(6, "Old records move to large segments, on Spark, while the log is used")
    await draw_chain()
    started = clock.monotonic()
    async with AsyncExitStack() as opened:
        try:
            work = await opened.enter_async_context(open_spark_work(StoreSpec.of(settings), run=run_task))
        except ConfigError as error:
            say(f"[yellow]left out[/yellow], as are vacuum, audit and tables: {error}")
            return

        def warm() -> AbstractAsyncContextManager[Work]:
            return nullcontext(work)

        say(f"Spark started in {clock.monotonic() - started:.1f} s")
        with bar(console) as show:
            tiered = await jobs.tier(settings, jobs.Which(topic), jobs.MAX_OFFSET, False, warm, show)
        segments = sum(each.segments for each in tiered.partitions)
        runs = sum(each.runs for each in tiered.partitions)
        if tiered.failed:
            raise WrongAnswer(f"tiering failed: {[each.error for each in tiered.partitions if each.error]}")
        say(f"{count(runs, 'piece')} became {count(segments, 'segment')} in {tiered.duration_ms / 1000:.1f} s")
        await draw_chain()
        await verify()

        title(7, "Vacuum deletes what nothing refers to any more")
        await clock.sleep(GRACE_S)
        before = await stored(log)
        vacuumed = await jobs.vacuum(settings, False, warm)
        say(f"{count(vacuumed.deleted.objects, 'object')} with {vacuumed.deleted.bytes / 1e6:,.1f} MB are gone")
        after = await stored(log)
        say(f"stored before {before / 1e6:,.1f} MB, now {after / 1e6:,.1f} MB")
        await verify()

        title(8, "Audit reads everything, and looks whether it is sound")
        with bar(console) as show:
            audited = await jobs.audit(settings, jobs.EVERYTHING, warm, show)
        if not audited.ok:
            raise WrongAnswer(f"the audit found {audited.damage or audited.unchecked}")
        say(
            f"[green]ok[/green] {count(audited.offsets, 'record')} in {count(audited.partitions, 'partition')}, "
            f"{audited.bytes / 1e6:,.1f} MB: every offset is there once, every CRC is right, no damage"
        )
        await DemoTables(log, settings, console).run(topic, audited.offsets, work, warm)


def with_short_grace(settings: Settings) -> Settings:
    half_ms = int(GRACE_S * 500)
    writer = msgspec.structs.replace(settings.diskless.writer, commit_deadline_ms=half_ms)
    return msgspec.structs.replace(
        settings,
        diskless=msgspec.structs.replace(settings.diskless, writer=writer),
        pipeline=PipelineSettings(vacuum=VacuumSettings(grace_ms=2 * half_ms, longest_job_ms=half_ms)),
    )


@contextmanager
def bar(console: Console) -> Iterator[Callable[[tier_pass.Progress], None]]:
    columns = (TextColumn("  {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("on Spark", total=None)
        yield lambda seen: progress.update(task, total=seen.bytes or None, completed=seen.bytes_done)


async def stored(log: Log) -> int:
    """Bytes of all objects."""
    found: list[ObjectInfo] = [info async for info in log.stores.objects.list("")]
    return sum(info.size for info in found)
