"""`catena pipeline tables`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import typer

from catena.cli.options import Config, Data, Debug, Json, common
from catena.cli.output import count, print_columns, print_json
from catena.cli.pipeline_options import DryRun, Master, OnTopic, Remote, which_of
from catena.cli.running import FAILED, reporting, require_log

if TYPE_CHECKING:
    from catena.tables.report import TablesReport


def tables(
    context: typer.Context,
    topic: OnTopic = None,
    dry_run: DryRun = False,
    master: Master = None,
    remote: Remote = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Bring the tables of topics up to date, and tidy them: [cyan]catena topic config TOPIC table.enable=true[/cyan].

    Every record that was acked before is in its table then, exactly once, whatever is killed in between and whoever
    else is at it. [cyan]catena pipeline run[/cyan] does this all the time, as table.commit.interval.ms asks. Needs the
    tables extra as well: [cyan]pip install 'catena-log\\[spark,tables]'[/cyan].
    """
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        from catena import jobs

        settings = options.load_settings()
        require_log(settings)
        work = jobs.on_spark(settings, master, remote)
        report = asyncio.run(jobs.tables(settings, which_of(topic, None), dry_run, work))
        if as_json:
            print_json(report)
        else:
            print_tables(report)
        if report.failed:
            raise typer.Exit(FAILED)


def print_tables(report: TablesReport) -> None:
    if not report.tables:
        print("no topic has a table; `catena topic config TOPIC table.enable=true` switches it on", file=sys.stderr)
        return
    rows: list[list[object]] = [
        [
            each.topic,
            each.format,
            each.outcome,
            each.rows,
            each.dead_letters,
            each.files,
            each.bytes,
            each.records_behind,
        ]
        for each in report.tables
    ]
    print_columns(["TOPIC", "FORMAT", "OUTCOME", "ROWS", "DEAD LETTERS", "FILES", "BYTES", "BEHIND"], rows)
    for each in report.tables:
        print(f"{each.topic}: {each.table}")
        for loss in each.losses:
            print(f"{each.topic}: {loss}", file=sys.stderr)
        if each.opaque_batches:
            batches = count(each.opaque_batches, "batch", "batches")
            print(f"{each.topic}: {batches} can't be decoded; each is one dead letter", file=sys.stderr)
        if each.error:
            print(f"{each.topic}: {each.error}", file=sys.stderr)
    for kept in report.upkeep:
        if kept.error:
            print(f"{kept.table}: {kept.error}", file=sys.stderr)
        if kept.compacted or kept.dropped or kept.expired or kept.orphans:
            compacted = f"{count(kept.compacted, 'file')} became {kept.compacted_into}, {kept.dropped} dropped"
            print(f"{kept.table}: {compacted}, {kept.expired} expired, {count(kept.orphans, 'orphan')} deleted")
    rows_in = sum(each.rows for each in report.tables)
    print(
        f"{count(rows_in, 'record')} in {report.duration_ms / 1000:.1f} s by {count(len(report.executors), 'executor')}"
    )
