"""`catena produce`: lines into records.

Lines are sent as they are read, many batches at once, and keep their order within a partition. At the first failure
reading stops and what is under way is waited for; the summary then says which lines are in the log, which are not, and
of which nobody can tell.
"""

from __future__ import annotations

import asyncio
import binascii
import os
import sys
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from catena.cli.lines import Lines, read_lines
from catena.cli.options import Config, Data, Debug, Json, Topic, common
from catena.cli.output import count, print_json
from catena.cli.partitioning import partition_of
from catena.cli.produce_summary import Failure, Summary
from catena.cli.running import FAILED, INTERRUPTED, message_of, reporting, run
from catena.errors import BatchTooLarge, CatenaError, OutcomeUnknown, UnknownPartition
from catena.runtime import SystemClock, Tasks

if TYPE_CHECKING:
    from catena.embedded import Log, Message

MAX_BYTES_IN_FLIGHT = 32 << 20
MAX_BATCHES_IN_FLIGHT = 64
PROGRESS_EVERY_S = 0.2


class Job(NamedTuple):
    topic: str
    partitions: Sequence[int]
    files: Sequence[Path]
    base64: bool
    key_separator: bytes | None


class Part(NamedTuple):
    """Records of some lines that go to one partition."""

    lines: Lines
    partition: int
    messages: list[Message]

    @property
    def size(self) -> int:
        return sum(len(message.value or "") + len(message.key or "") for message in self.messages)


def produce(
    context: typer.Context,
    topic: Topic,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES]...",
            exists=True,
            dir_okay=False,
            readable=True,
            allow_dash=True,
            help="Read these; standard input if there are none, or for `-`.",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Send all to this one.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="A line is KEY, this TEXT, VALUE.", show_default=False),
    ] = None,
    base64: Annotated[bool, typer.Option("--base64", help="Values, and keys, are base64.")] = False,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Append lines to a topic, one record a line.

    Without --partition, records with a key go where Kafka's clients would send them, and the others go to the
    partitions in turn, up to 1000 lines at a time. The summary says which offsets the records got; exit code 1 means
    that something failed.
    """
    if key_separator == "":
        raise typer.BadParameter("--key-separator can't be empty")
    if not files and sys.stdin.isatty():
        print("one record a line; Ctrl-D ends", file=sys.stderr)

    async def work(log: Log) -> Summary:
        record = await log.topic(topic)
        if partition is not None and partition >= record.partitions:
            raise UnknownPartition(topic, partition, record.partitions)
        partitions = range(record.partitions) if partition is None else [partition]
        separator = None if key_separator is None else os.fsencode(key_separator)
        return await _produce(log, Job(topic, partitions, files or [Path("-")], base64, separator))

    options = common(context, data, config, debug, as_json)
    with reporting(options):
        summary = run(options, work)
        if as_json:
            print_json(summary.as_fields())
        else:
            print("\n".join(summary.as_text()))
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    if summary.failed:
        raise typer.Exit(FAILED)


async def _produce(log: Log, job: Job) -> Summary:
    summary = Summary()
    sender = _Sender(log, job.topic, summary)
    try:
        async with aclosing(_all_lines(job.files)) as all_lines:
            await _send_all(all_lines, job, sender, summary)
    except asyncio.CancelledError:
        summary.interrupted = True
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()  # what follows is to be waited for
    except (BatchTooLarge, OSError) as error:
        source, line = summary.read_up_to or (str(job.files[0]), 0)
        summary.fail(Failure(source, line + 1, line + 1, 1, None, False, message_of(error)))
    await sender.drain()
    return summary


async def _send_all(all_lines: AsyncIterator[Lines], job: Job, sender: _Sender, summary: Summary) -> None:
    turn = 0
    async for lines in all_lines:
        for part in _parts(lines, job, turn, summary):
            sender.send(part)
        if summary.failed:
            return
        turn += 1
        await sender.wait_for_room()


async def _all_lines(files: Sequence[Path]) -> AsyncGenerator[Lines]:
    for path in files:
        if str(path) == "-":
            async for lines in read_lines("standard input", sys.stdin.fileno()):
                yield lines
            continue
        file = os.open(path, os.O_RDONLY)
        try:
            async for lines in read_lines(str(path), file):
                yield lines
        finally:
            os.close(file)


def _parts(lines: Lines, job: Job, turn: int, summary: Summary) -> Iterator[Part]:
    """Spread the records of these lines over partitions, up to the first line that can't be one."""
    from catena.embedded import Message

    summary.read_up_to = (lines.source, lines.last)
    by_partition: dict[int, list[Message]] = {}
    in_turn = job.partitions[turn % len(job.partitions)]
    for number, line in enumerate(lines.lines, lines.first):
        try:
            key, value = _key_and_value(line, job)
        except binascii.Error as error:
            summary.read_up_to = (lines.source, number)
            summary.fail(Failure(lines.source, number, number, 1, None, False, f"it is not base64: {error}"))
            break
        partition = in_turn if key is None else job.partitions[partition_of(key, len(job.partitions))]
        by_partition.setdefault(partition, []).append(Message(value, key))
    for partition, messages in by_partition.items():
        yield Part(lines, partition, messages)


def _key_and_value(line: bytes, job: Job) -> tuple[bytes | None, bytes]:
    key: bytes | None = None
    if job.key_separator is not None:
        before, separator, after = line.partition(job.key_separator)
        if separator:
            key, line = before, after
    if not job.base64:
        return key, line
    return None if key is None else b64decode(key, validate=True), b64decode(line, validate=True)


class _Sender:
    """Appends parts in the background, in their order, and keeps the score."""

    def __init__(self, log: Log, topic: str, summary: Summary) -> None:
        self._log = log
        self._topic = topic
        self._summary = summary
        self._tasks = Tasks("produce")
        self._batches = 0
        self._bytes = 0
        self._one_ended = asyncio.Event()
        self._progress = _Progress(summary)

    def send(self, part: Part) -> None:
        size = part.size
        self._batches += 1
        self._bytes += size
        self._tasks.spawn("append lines", self._append(part, size))

    async def wait_for_room(self) -> None:
        while self._bytes > MAX_BYTES_IN_FLIGHT or self._batches > MAX_BATCHES_IN_FLIGHT:
            await self._wait_for_one()

    async def drain(self) -> None:
        while self._batches:
            await self._wait_for_one()
        self._progress.end()

    async def _append(self, part: Part, size: int) -> None:
        try:
            offsets = await self._log.append_batch(self._topic, part.messages, partition=part.partition)
            self._summary.ack(part.partition, offsets, size)
            self._progress.show()
        except CatenaError as error:
            lines, partition, messages = part
            unknown = isinstance(error, OutcomeUnknown)
            self._summary.fail(
                Failure(lines.source, lines.first, lines.last, len(messages), partition, unknown, message_of(error))
            )
        finally:
            self._batches -= 1
            self._bytes -= size
            self._one_ended.set()

    async def _wait_for_one(self) -> None:
        self._one_ended.clear()
        await self._one_ended.wait()


class _Progress:
    """One line that is written over and over, for whoever looks on."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self._is_seen = sys.stderr.isatty()
        self._clock = SystemClock()
        self._next = self._clock.monotonic() + PROGRESS_EVERY_S
        self._width = 0

    def show(self) -> None:
        now = self._clock.monotonic()
        if self._is_seen and now >= self._next:
            self._next = now + PROGRESS_EVERY_S
            line = f"{count(self._summary.acked, 'record')}, {self._summary.acked_bytes / 1e6:,.1f} MB acked"
            self._width = max(self._width, len(line))
            print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)
