"""`catena pipeline`: the jobs that work on what is stored, on Spark."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from catena.cli.options import Config, Data, Debug, Json, common
from catena.cli.output import count, print_columns, print_json
from catena.cli.pipeline_compact import compact, print_compacted
from catena.cli.pipeline_options import DryRun, Master, OnPartition, OnTopic, Remote, which_of
from catena.cli.pipeline_tables import print_tables, tables
from catena.cli.progress import showing, showing_vacuum
from catena.cli.running import FAILED, reporting, require_log
from catena.errors import ConfigError
from catena.logs import configure

if TYPE_CHECKING:
    from catena.config import Settings
    from catena.jobs import OpenWork, RetentionReport, Running, Which
    from catena.jobs.figures import Figures
    from catena.pipeline.audit import AuditReport
    from catena.pipeline.report import RunReport
    from catena.pipeline.tier_pass import PartitionReport
    from catena.pipeline.vacuum import VacuumReport

LATEST = "latest"
ENDS = (signal.SIGTERM, signal.SIGINT)

HELP = """Jobs that work on what is stored: on Spark, on this machine or on any cluster.

They may be ended, killed and run again at any time, by anyone, beside nodes that serve: the log can be read throughout,
and nothing is lost or doubled. They need the spark extra: [cyan]pip install 'catena-log\\[spark]'[/cyan].
"""

app = typer.Typer(no_args_is_help=True, help=HELP)


app.command()(compact)
app.command()(tables)


@app.command()
def tier(
    context: typer.Context,
    topic: OnTopic = None,
    partition: OnPartition = None,
    force_up_to: Annotated[
        str | None,
        typer.Option(
            "--force-up-to",
            metavar="OFFSET",
            help="Take all that begins below this offset, or [cyan]latest[/cyan], whatever its age and size.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    remote: Remote = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Make large segments of the many small pieces in which records arrive, and larger ones of small ones.

    Old records are then read with few requests. What is tiered is decided by its age and size: see the settings
    `pipeline.tier`. A partition that another driver works on is left to it; with --force-up-to that is exit code 1.
    """
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        from catena import jobs

        settings = options.load_settings()
        require_log(settings)
        which = which_of(topic, partition)
        with showing("tiering", not as_json) as show:
            work = jobs.on_spark(settings, master, remote)
            report = asyncio.run(jobs.tier(settings, which, _offset(force_up_to), dry_run, work, show))
        if as_json:
            print_json(report)
        else:
            _print_tiered(report)
        if report.failed or (report.left_to_others and force_up_to is not None):
            raise typer.Exit(FAILED)


@app.command()
def retention(
    context: typer.Context,
    topic: OnTopic = None,
    partition: OnPartition = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Trim what topics need not keep any longer: retention.ms and retention.bytes of their configs.

    Nodes do so by themselves. This needs no Spark.
    """
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        from catena import jobs

        settings = options.load_settings()
        require_log(settings)
        report = asyncio.run(jobs.retention(settings, which_of(topic, partition), dry_run))
        if as_json:
            print_json(report)
        else:
            _print_trimmed(report)
        if report.failed:
            raise typer.Exit(FAILED)


@app.command()
def vacuum(
    context: typer.Context,
    dry_run: DryRun = False,
    master: Master = None,
    remote: Remote = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Delete the objects that nothing refers to any more.

    What dead writers and abandoned jobs have left, what was tiered, merged, trimmed, and of deleted topics; nothing
    that is younger than the setting pipeline.vacuum.grace_ms.
    """
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        from catena import jobs

        settings = options.load_settings()
        require_log(settings)
        with showing_vacuum(not as_json) as show:
            work = jobs.on_spark(settings, master, remote)
            report = asyncio.run(jobs.vacuum(settings, dry_run, work, show))
        if as_json:
            print_json(report)
        else:
            _print_vacuumed(report)
        if report.failed:
            raise typer.Exit(FAILED)


@app.command()
def audit(
    context: typer.Context,
    topic: OnTopic = None,
    partition: OnPartition = None,
    master: Master = None,
    remote: Remote = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Read everything, and look whether it is sound: the fsck of Catena.

    Every offset is there once, every CRC is right, and all that tells of them agrees. Exit code 1 if there is damage,
    or if something could not be looked at.
    """
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        from catena import jobs

        settings = options.load_settings()
        require_log(settings)
        with showing("auditing", not as_json) as show:
            work = jobs.on_spark(settings, master, remote)
            report = asyncio.run(jobs.audit(settings, which_of(topic, partition), work, show))
        if as_json:
            print_json(report)
        else:
            _print_audited(report)
        if not report.ok:
            raise typer.Exit(FAILED)


@app.command()
def run(
    context: typer.Context,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Retention, tiering, compaction, tables and vacuum once, one after the other, if scheduled; no audit.",
        ),
    ] = False,
    topic: OnTopic = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show once what these would do now, and do nothing.")
    ] = False,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port",
            min=0,
            max=65535,
            help="For /health and /metrics; any free one if nothing is said.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    remote: Remote = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Run all jobs again and again, until SIGTERM or Ctrl-C, with one warm Spark for all of them.

    Tiering, compaction, tables, retention, vacuum and audit each have a schedule: the settings pipeline.service. They
    run beside each other, one that fails does not stop the others, and they end between two commits. With --topic
    vacuum is left out: orphans are of no topic.

    Several services may run, also on other machines. They share the tiering; one of them is enough to vacuum and audit.
    Exit code 1 if the last run of a job was not good. --json prints a line when the service is there, and what it did
    when it ends.
    """
    options = common(context, data, config, debug, as_json)
    configure(debug=options.debug)
    with reporting(options):
        from catena import jobs

        settings = options.load_settings()
        require_log(settings)
        if http_port is not None:
            settings = structs.replace(settings, http=structs.replace(settings.http, port=http_port))
        work = jobs.on_spark(settings, master, remote)
        if dry_run:
            is_good = asyncio.run(_show_plans(settings, work, which_of(topic, None), as_json))
        else:
            is_good = asyncio.run(_serve(settings, work, which_of(topic, None), once, as_json))
        if not is_good:
            raise typer.Exit(FAILED)


async def _show_plans(settings: Settings, open_work: OpenWork, which: Which, as_json: bool) -> bool:
    """What a run of each job would do now; whether all could tell."""
    from catena import jobs

    every, is_good = settings.pipeline.service, True
    shown: dict[str, object] = {}
    if every.retention_every_ms:
        shown["retention"] = trimmed = await jobs.retention(settings, which, dry_run=True)
        is_good = not trimmed.failed
    shown["tier"] = tiered = await jobs.tier(settings, which, dry_run=True, open_work=open_work)
    is_good = is_good and not tiered.failed
    if every.compact_every_ms:
        shown["compact"] = compacted = await jobs.compact(
            settings, which, dry_run=True, open_work=open_work, is_asked_for=False
        )
        is_good = is_good and not compacted.failed
    if every.tables_every_ms and await jobs.has_tables(settings, which):
        shown["tables"] = built = await jobs.tables(settings, which, dry_run=True, open_work=open_work)
        is_good = is_good and not built.failed
    if every.vacuum_every_ms and which.topic is None:
        shown["vacuum"] = await jobs.vacuum(settings, dry_run=True, open_work=open_work)
    if as_json:
        print_json(shown)
    else:
        printers: dict[str, Callable[[Any], None]] = {
            "retention": _print_trimmed,
            "tier": _print_tiered,
            "compact": print_compacted,
            "tables": print_tables,
            "vacuum": _print_vacuumed,
        }
        for job, report in shown.items():
            printers[job](report)
    return is_good


async def _serve(settings: Settings, open_work: OpenWork, which: Which, once: bool, as_json: bool) -> bool:
    """Whether the last run of each job was good."""
    from catena import jobs

    ending = _Ending()
    try:
        async with jobs.open_service(settings, open_work, which) as running:
            ending.tell = running.end
            return await _run_service(running, once, as_json)
    except asyncio.CancelledError:
        if not ending.is_asked:
            raise
        return True  # it was told to end before it had begun


class _Ending:
    """The first signal tells the service to end, or gives up its start; the next one does what signals always do."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tell: Callable[[], object] = task.cancel
        self.is_asked = False
        for number in ENDS:
            asyncio.get_running_loop().add_signal_handler(number, self._ask)

    def _ask(self) -> None:
        for number in ENDS:
            asyncio.get_running_loop().remove_signal_handler(number)
        self.is_asked = True
        self.tell()


async def _run_service(running: Running, once: bool, as_json: bool) -> bool:
    if as_json:
        print_json({"http": running.http, "pid": os.getpid()})
    else:
        print(f"catena: the pipeline runs; http://{running.http}/health; Ctrl-C ends it", file=sys.stderr)
    sys.stdout.flush()
    if once:
        await running.service.run_once()
    else:
        await running.service.run()
    figures, troubles = running.state.figures, running.state.troubles
    if as_json:
        print_json(figures)
    else:
        _print_served(figures)
        for trouble in troubles:
            print(trouble, file=sys.stderr)
    return not troubles


def _offset(text: str | None) -> int | None:
    from catena.jobs import MAX_OFFSET

    if text is None or text == LATEST:
        return MAX_OFFSET if text else None
    if not text.isdecimal():
        raise ConfigError(f"option --force-up-to: {text!r} is no offset; give a number, or {LATEST}")
    return int(text)


def _print_trimmed(report: RetentionReport) -> None:
    if not report.partitions:
        print("nothing is older or larger than its topic keeps")
        return
    rows = [[each.topic, each.partition, each.start, each.new_start] for each in report.partitions]
    print_columns(["TOPIC", "PARTITION", "STARTED AT", "WOULD START AT" if report.dry_run else "STARTS AT"], rows)
    for each in report.partitions:
        if each.error:
            print(f"{each.topic}/{each.partition}: {each.error}", file=sys.stderr)


def _print_tiered(report: RunReport) -> None:
    if report.partitions:
        print_columns(
            ["TOPIC", "PARTITION", "OUTCOME", "BOUNDARY", "SEGMENTS", "RUNS", "MERGED", "DROPPED", "BYTES"],
            [_row(each) for each in report.partitions],
        )
    for each in report.partitions:
        if each.recovered != "nothing":
            print(f"{each.topic}/{each.partition}: a job that was left behind: {each.recovered}")
        if each.error:
            print(f"{each.topic}/{each.partition}: {each.error}", file=sys.stderr)
    if report.left_to_others:
        partitions = count(report.left_to_others, "partition")
        print(
            f"{partitions} left to another driver, or to one that was killed in the last half minute", file=sys.stderr
        )
    size = sum(each.bytes for each in report.partitions if each.outcome in ("tiered", "planned"))
    done = "would be tiered" if report.dry_run else "tiered"
    seconds = report.duration_ms / 1000
    idle = f"; nothing to do in {count(report.idle, 'partition')}" if report.idle else ""
    print(f"{size:,} bytes {done} in {seconds:.1f} s by {count(len(report.executors), 'executor')}{idle}")


def _print_served(figures: Figures) -> None:
    rows: list[list[object]] = [
        [job, sum(each.runs.values()), each.runs["good"], f"{each.seconds:.1f}"]
        for job, each in figures.jobs.items()
        if any(each.runs.values())
    ]
    if rows:
        print_columns(["JOB", "RUNS", "GOOD", "SECONDS"], rows)
    tier, vacuum = figures.tier, figures.vacuum
    print(
        f"{tier.bytes:,} bytes tiered in {count(tier.segments, 'segment')}; "
        f"{count(figures.compact.records_removed, 'record')} compacted away; "
        f"{count(figures.retention.trimmed, 'partition')} trimmed; "
        f"{count(vacuum.deleted, 'object')}, {vacuum.deleted_bytes:,} bytes deleted"
    )


def _print_vacuumed(report: VacuumReport) -> None:
    rows = [[kind, amount.objects, amount.bytes] for kind, amount in report.orphans.items()]
    if rows:
        print_columns(["ORPHANS", "OBJECTS", "BYTES"], rows)
    for key in report.first_keys:
        print(f"  {key}")
    for topic in report.forgotten_topics:
        print(f"deleted topic {topic}: its records are {'to be removed' if report.dry_run else 'removed'}")
    if report.forgotten_producers:
        would = "to be forgotten" if report.dry_run else "forgotten"
        print(f"{count(report.forgotten_producers, 'producer')} silent for two days: {would}")
    if report.forgotten_writes:
        would = "to be forgotten" if report.dry_run else "forgotten"
        print(f"{count(report.forgotten_writes, 'write')} that nobody has begun: {would}")
    if report.error:
        print(f"{count(report.failed, 'object')} could not be deleted: {report.error}", file=sys.stderr)
    listed = f"of {count(report.listed, 'object')}, {report.kept_young:,} too young to be looked at"
    seconds = report.duration_ms / 1000
    if report.dry_run:
        orphans = sum(amount.objects for amount in report.orphans.values())
        print(f"{count(orphans, 'object')} would be deleted {listed}; {seconds:.1f} s")
    else:
        deleted = f"{count(report.deleted.objects, 'object')}, {report.deleted.bytes:,} bytes"
        print(f"deleted {deleted}, {listed}; {seconds:.1f} s")


def _print_audited(report: AuditReport) -> None:
    for found in report.defects:
        place = f"{found.topic}/{found.partition}, offsets {found.offsets[0]:,} to {found.offsets[1]:,}"
        key = "" if found.key in found.what else f" ({found.key})"
        print(f"{found.severity}: {place}: {found.what}{key}")
    for left in report.unchecked:
        print(f"not checked: {left.topic}/{left.partition}: {left.error}", file=sys.stderr)
    damage, leftovers = len(report.damage) + report.unlisted, len(report.defects) - len(report.damage)
    orphans = "" if report.orphans is None else f", {count(report.orphans.objects, 'orphan')} for vacuum"
    print(
        f"{count(report.partitions, 'partition')}, {count(report.offsets, 'record')}, {report.bytes:,} bytes in "
        f"{report.duration_ms / 1000:.1f} s: {damage or 'no'} damage, {count(leftovers, 'leftover')}{orphans}"
    )


def _row(each: PartitionReport) -> list[object]:
    return [
        each.topic,
        each.partition,
        each.outcome,
        each.boundary,
        each.segments,
        each.runs,
        each.merged,
        each.dropped,
        each.bytes,
    ]
