"""`python -m catena.demo`: what Catena does, on the embedded default, in half a minute; every claim is checked.

It works in a folder of its own. One that it did not make is left alone, unless it is empty.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from catena.cli.chain import draw
from catena.cli.output import count
from catena.config import Settings
from catena.demo_pipeline import tier_vacuum_and_audit
from catena.demo_tables import WrongAnswer
from catena.embedded import Log, open_log
from catena.errors import CatenaError, Sealed
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.loglets.base import Entry
from catena.meta import keys
from catena.runtime import SystemClock
from catena.types import Offset

MARK = "made-by-catena-demo"
PARTITIONS = 3
PRODUCERS = 6
BATCHES = 80
RECORDS_PER_BATCH = 100
MOVING_RECORDS = 10_000
"""At least so many go to each of the three links."""
VALUE_BYTES = 200


class CheckFailed(Exception):
    """Says what was expected and what was found."""


class Demo:
    def __init__(self, log: Log, settings: Settings, topic: str, console: Console) -> None:
        self._log = log
        self._settings = settings
        self._topic = topic
        self._console = console
        self._clock = SystemClock()
        self._acked: dict[int, dict[Offset, bytes]] = {partition: {} for partition in range(PARTITIONS)}

    async def run(self) -> None:
        await self._log.create_topic(self._topic, PARTITIONS)
        self._say(f"Topic [bold]{self._topic}[/bold] with {PARTITIONS} partitions, in {self._settings.data}")
        await self._append()
        await self._read_back()
        await self._fence_a_writer()
        await self._move_while_it_is_used()
        await self._show_where_the_bytes_are()
        await tier_vacuum_and_audit(self._log, self._settings, self._topic, self._console, self._verify_all)

    async def _append(self) -> None:
        self._title("1", f"{PRODUCERS} producers append at once")
        total = PRODUCERS * BATCHES * RECORDS_PER_BATCH
        started = self._clock.monotonic()
        with self._progress() as progress:
            bar = progress.add_task("appended", total=total)

            async def produce(number: int) -> None:
                for batch in range(BATCHES):
                    await self._append_batch((number + batch) % PARTITIONS, f"producer {number} batch {batch}")
                    progress.advance(bar, RECORDS_PER_BATCH)

            await asyncio.gather(*(produce(number) for number in range(PRODUCERS)))
        seconds = self._clock.monotonic() - started
        self._say(f"{count(total, 'record')}, each acked once durable, in {seconds:.1f} s")

    async def _append_batch(self, partition: int, label: str) -> None:
        values = [f"{label} record {i}".ljust(VALUE_BYTES, ".").encode() for i in range(RECORDS_PER_BATCH)]
        offsets = await self._log.append_batch(self._topic, values, partition=partition)
        self._acked[partition].update(zip(offsets, values, strict=True))

    async def _read_back(self) -> None:
        self._title("2", "Every record is read back and compared")
        await self._verify_all()

    async def _verify_all(self) -> None:
        for partition in range(PARTITIONS):
            await self._verify(partition)

    async def _verify(self, partition: int) -> None:
        """The log holds what was acked, at the offsets that were acked, and nothing else."""
        acked = self._acked[partition]
        expected = start = await self._log.start(self._topic, partition)
        async for record in self._log.read(self._topic, partition):
            if record.offset != expected or acked.get(expected) != record.value:
                raise CheckFailed(
                    f"partition {partition}: offset {expected} should have {acked.get(expected)!r}: {record}"
                )
            expected += 1
        if expected != len(acked):
            raise CheckFailed(f"partition {partition}: {len(acked)} records were acked, {expected} are in the log")
        self._ok(
            f"partition {partition}: {count(expected - start, 'record')}, none lost, doubled, changed or out of order"
        )

    async def _fence_a_writer(self) -> None:
        self._title("3", "A writer that was left behind is fenced")
        partition = 1
        async with open_log(self._settings) as other:
            stale = await other.node.log(self._topic, partition)
            old_link = (await stale.chain()).last
            await self._log.reconfigure(self._topic, partition, kind="diskless")
            tail = await self._log.tail(self._topic, partition)
            try:
                await stale.loglet(old_link).append(_entry(b"too late"))
            except Sealed as refused:
                self._ok(f"an append with epoch {old_link.epoch} is refused: {refused}")
            else:
                raise CheckFailed(f"a writer with epoch {old_link.epoch} was not fenced")
            value = b"the same process, after a look at the chain"
            self._acked[partition][await other.append(self._topic, value, partition=partition)] = value
        self._ok(f"the same process then follows the chain, and appends at offset {tail:,}")
        await self._verify(partition)

    async def _move_while_it_is_used(self) -> None:
        self._title("4", "A partition moves to another kind of store and back, while it is used")
        partition = 2
        progressed, moved = asyncio.Event(), asyncio.Event()

        async def produce(number: int) -> None:
            batches = itertools.count()
            while not moved.is_set():
                await self._append_batch(partition, f"moving producer {number} batch {next(batches)}")
                progressed.set()

        async def wait_for_more() -> None:
            goal = len(self._acked[partition]) + MOVING_RECORDS
            while len(self._acked[partition]) < goal:
                progressed.clear()
                await progressed.wait()

        async def move() -> None:
            for kind in ("memory", "diskless"):
                await wait_for_more()
                await self._log.reconfigure(self._topic, partition, kind=kind)
            await wait_for_more()
            moved.set()

        await asyncio.gather(move(), *(produce(number) for number in range(PRODUCERS)))
        await self._verify(partition)
        chain, tail = await self._log.chain(self._topic, partition), await self._log.tail(self._topic, partition)
        kinds = [link.kind for link in chain.links]
        if kinds != ["diskless", "memory", "diskless"]:
            raise CheckFailed(f"the chain should be diskless, memory, diskless, and is {kinds}")
        self._say("")
        for line in draw(f"{self._topic}/{partition}", chain, tail):
            self._say(f"    {line}")
        await self._log.trim(self._topic, chain.last.base, partition)
        self._say(f"\n  Memory ends with this process, so the log is trimmed up to offset {chain.last.base:,}.")

    async def _show_where_the_bytes_are(self) -> None:
        self._title("5", "Where the bytes are")
        objects, meta = self._log.stores.objects, self._log.stores.meta
        sizes = [info.size async for info in objects.list(keys.WAL_BLOBS)]
        records, start = 0, keys.ROOT
        while page := await meta.scan(start, keys.after(keys.ROOT)):
            records += len(page)
            start = page[-1].key + "\0"
        self._say(f"  {self._settings.data}/objects  {count(len(sizes), 'blob')}, {sum(sizes) / 1e6:,.1f} MB")
        self._say(f"  {self._settings.data}/meta.db  {count(records, 'meta record')}")

    def _title(self, number: str, text: str) -> None:
        self._console.print(f"\n[bold cyan]{number}[/bold cyan] [bold]{text}[/bold]")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def _ok(self, text: str) -> None:
        self._console.print(f"  [green]ok[/green] {text}", highlight=False)

    def _progress(self) -> Progress:
        return Progress(TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), console=self._console)


def _entry(value: bytes) -> Entry:
    data = build_batch([(None, value, (), 0)])
    return Entry(parse_header(data), data)


def prepare(folder: Path, keep: bool) -> None:
    """Remove what an earlier run left, unless it is to be kept. What the demo did not make it does not touch."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise CheckFailed(f"{folder} is not empty, and not from an earlier demo: name another folder with --data")
    if folder.exists() and not keep:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def free_name(taken: Sequence[str]) -> str:
    def names() -> Iterator[str]:
        yield "demo"
        yield from (f"demo-{number}" for number in range(2, len(taken) + 3))

    return next(name for name in names() if name not in taken)


async def run(folder: Path, keep: bool, console: Console) -> str:
    """Returns the topic that was made."""
    prepare(folder, keep)
    settings = Settings(data=str(folder))
    async with open_log(settings) as log:
        topic = free_name([record.name for record in await log.topics()])
        await Demo(log, settings, topic, console).run()
    return topic


def suggest(folder: Path, topic: str) -> Iterator[str]:
    catena = f"{os.path.relpath(Path(sys.executable).with_name('catena'))} --data {folder}"
    yield f"{catena} consume {topic} --partition 0 --from earliest --to 3"
    yield f"echo hello | {catena} produce {topic} --partition 0"
    yield f"{catena} consume {topic} --from latest --follow"
    yield f"{catena} chain {topic} 2"
    yield f"{catena} pipeline tier --dry-run --force-up-to latest"
    yield f"{catena} doctor"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m catena.demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default="demo-data", metavar="DIR", help="folder of the demo (demo-data)")
    parser.add_argument("--keep", action="store_true", help="keep what earlier runs left there")
    given = parser.parse_args(arguments)
    console = Console()
    try:
        topic = asyncio.run(run(Path(given.data), given.keep, console))
    except (CheckFailed, WrongAnswer, CatenaError, OSError) as error:
        console.print(f"\n[bold red]failed[/bold red] {type(error).__name__}: {error}", markup=True)
        return 1
    except KeyboardInterrupt:
        return 130
    console.print("\n[bold]All checks passed.[/bold] Go on with")
    for command in suggest(Path(given.data), topic):
        console.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
