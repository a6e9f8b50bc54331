"""How far a job is, on the terminal: a bar that goes away when it is done. Nothing where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from catena.cli.output import count

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from catena.pipeline.tier_pass import Progress
    from catena.pipeline.vacuum import VacuumProgress


@contextmanager
def showing(what: str, wanted: bool) -> Iterator[Callable[[Progress], None]]:
    """Bytes, partitions, and how long it will still take."""
    if not wanted or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("{task.fields[said]}"))
    with _bar(*columns, TimeRemainingColumn()) as bar:
        task = bar.add_task(what, total=None, said="")

        def show(progress: Progress) -> None:
            said = f"{progress.partitions_done:,} of {count(progress.partitions, 'partition')}"
            bar.update(task, total=progress.bytes or None, completed=progress.bytes_done, said=said)

        yield show


@contextmanager
def showing_vacuum(wanted: bool) -> Iterator[Callable[[VacuumProgress], None]]:
    """Its stage; partitions whose references are read, and how long that will still take; what is deleted."""
    if not wanted or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    with _bar(BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn()) as bar:
        task = bar.add_task("vacuum", total=None, said="")

        def show(progress: VacuumProgress) -> None:
            said = f"{progress.partitions_done:,} of {count(progress.partitions, 'partition')}"
            if progress.deleted.objects:
                said = f"{count(progress.deleted.objects, 'object')}, {progress.deleted.bytes:,} bytes"
            bar.update(
                task,
                description=progress.stage,
                total=None if progress.deleted.objects else progress.partitions or None,
                completed=progress.partitions_done,
                said=said,
            )

        yield show


def _bar(*columns: object) -> Bar:
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    return Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True), transient=True)  # type: ignore[arg-type]
