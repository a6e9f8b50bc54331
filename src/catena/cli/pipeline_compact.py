"""`catena pipeline compact`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import typer

from catena.cli.options import Config, Data, Debug, Json, common
from catena.cli.output import count, print_columns, print_json
from catena.cli.pipeline_options import DryRun, Master, OnPartition, OnTopic, Remote, which_of
from catena.cli.progress import showing
from catena.cli.running import FAILED, reporting, require_log

if TYPE_CHECKING:
    from catena.jobs import CompactRunReport


def compact(
    context: typer.Context,
    topic: OnTopic = None,
    partition: OnPartition = None,
    dry_run: DryRun = False,
    master: Master = None,
    remote: Remote = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Keep the last record of each key, of topics whose cleanup.policy says compact.

    Of what is tiered: run [cyan]catena pipeline tier[/cyan] before. Offsets stay as they are, and what is removed
    leaves gaps. A log is compacted when enough of it is new: see min.cleanable.dirty.ratio and its neighbours among the
    topic's configs. A partition that another driver works on is left to it.
    """
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        from catena import jobs

        settings = options.load_settings()
        require_log(settings)
        with showing("compacting", not as_json) as show:
            work = jobs.on_spark(settings, master, remote)
            report = asyncio.run(jobs.compact(settings, which_of(topic, partition), dry_run, work, show))
        if as_json:
            print_json(report)
        else:
            print_compacted(report)
        if report.failed:
            raise typer.Exit(FAILED)


def print_compacted(report: CompactRunReport) -> None:
    if report.partitions:
        columns = ["TOPIC", "PARTITION", "OUTCOME", "UP TO", "RECORDS", "LEFT", "KEYS", "TOMBSTONES GONE"]
        rows: list[list[object]] = [
            [
                each.topic,
                each.partition,
                each.outcome,
                each.cleaned_up_to,
                each.records_before,
                each.records if each.outcome == "compacted" else "",
                each.keys if each.outcome == "compacted" else "",
                each.tombstones if each.outcome == "compacted" else "",
            ]
            for each in report.partitions
        ]
        print_columns(columns, rows)
    for each in report.partitions:
        if each.recovered != "nothing":
            print(f"{each.topic}/{each.partition}: a job that was left behind: {each.recovered}")
        if each.opaque_batches:
            batches = count(each.opaque_batches, "batch", "batches")
            print(
                f"{each.topic}/{each.partition}: {batches} can't be decoded and stay as they are, from offset "
                f"{each.first_opaque} on",
                file=sys.stderr,
            )
        if each.error:
            print(f"{each.topic}/{each.partition}: {each.error}", file=sys.stderr)
    if report.left_to_others:
        partitions = count(report.left_to_others, "partition")
        print(
            f"{partitions} left to another driver, or to one that was killed in the last half minute", file=sys.stderr
        )
    done = [each for each in report.partitions if each.outcome in ("compacted", "planned")]
    before, after = sum(each.bytes_before for each in done), sum(each.bytes for each in done)
    said = f"{before:,} bytes would be compacted" if report.dry_run else f"{before:,} bytes became {after:,}"
    idle = f"; nothing to do in {count(report.idle, 'partition')}" if report.idle else ""
    print(f"{said} in {report.duration_ms / 1000:.1f} s by {count(len(report.executors), 'executor')}{idle}")
