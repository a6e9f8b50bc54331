"""`catena consume`: records to standard output.

Output goes out as it is read, about a megabyte at a time, so a reader that goes away (`| head`) ends the command soon,
and one that is slow makes it wait.
"""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

from catena.cli.options import Config, Data, Debug, Json, Topic, common
from catena.cli.running import INTERRUPTED, reporting, run
from catena.errors import OffsetOutOfRange, Rejected
from catena.runtime import Tasks

if TYPE_CHECKING:
    from catena.embedded import Log, Position
    from catena.formats.records import Record

QUEUED_BATCHES = 4


class Wanted(NamedTuple):
    topic: str
    partition: int | None
    first: Position
    last: Position
    follow: bool


class Span(NamedTuple):
    partition: int
    start: int
    end: int | None
    """None: for ever."""


def _position(text: str) -> Any:
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    raise typer.BadParameter(f"{text!r} is not `earliest`, `latest` or an offset, which is 0 or more")


def consume(
    context: typer.Context,
    topic: Topic,
    first: Annotated[
        Any, typer.Option("--from", metavar="POSITION", parser=_position, help="earliest, latest, or an offset.")
    ] = "earliest",
    last: Annotated[
        Any, typer.Option("--to", metavar="POSITION", parser=_position, help="latest, or an offset: up to it.")
    ] = "latest",
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes in, until interrupted.")] = False,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="One partition; else all.")] = None,
    base64: Annotated[bool, typer.Option("--base64", help="Write bytes as base64.")] = False,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Write records to standard output: values, one a line.

    Without --follow it ends where the log ends when it starts, or at --to. Partitions come one after the other; with
    --follow, their records come as they are appended. --json writes an object a line with partition, offset,
    timestamp, key, value and headers; what is not UTF-8 text is in key_base64 and value_base64.
    """
    wanted = Wanted(topic, partition, first, last, follow)
    written = _as_json(base64) if as_json else _as_base64 if base64 else _as_text
    options = common(context, data, config, debug, as_json)
    with reporting(options, interrupted=0 if follow else INTERRUPTED):
        run(options, lambda log: _consume(log, wanted, written, sys.stdout.buffer))


async def _consume(log: Log, wanted: Wanted, written: Callable[[int, Record], bytes], out: BinaryIO) -> None:
    if wanted.partition is not None:
        partitions = [wanted.partition]
    else:
        partitions = list(range((await log.topic(wanted.topic)).partitions))
        if len(partitions) > 1 and (isinstance(wanted.first, int) or isinstance(wanted.last, int)):
            raise Rejected("an offset belongs to one partition: add --partition P")
    spans = [await _span(log, wanted, partition) for partition in partitions]
    read = _follow_all if wanted.follow else _read_all
    async with aclosing(read(log, wanted.topic, spans)) as batches:
        async for partition, records in batches:
            out.write(b"".join([written(partition, record) for record in records]))
            out.flush()


async def _span(log: Log, wanted: Wanted, partition: int) -> Span:
    """The offsets that are wanted of a partition."""
    earliest, tail = await log.start(wanted.topic, partition), await log.tail(wanted.topic, partition)
    known = {"earliest": earliest, "latest": tail}
    start = wanted.first if isinstance(wanted.first, int) else known[wanted.first]
    end = wanted.last if isinstance(wanted.last, int) else known[wanted.last]
    if not earliest <= start <= tail:
        raise OffsetOutOfRange(start, earliest, tail)
    if wanted.follow and wanted.last == "latest":
        return Span(partition, start, None)
    if end > tail and not wanted.follow:
        raise OffsetOutOfRange(end, earliest, tail)
    if end < start:
        raise Rejected(f"--to {wanted.last} ends at offset {end}, before --from {wanted.first}, which is {start}")
    return Span(partition, start, end)


async def _read_all(log: Log, topic: str, spans: Sequence[Span]) -> AsyncGenerator[tuple[int, list[Record]]]:
    for partition, start, end in spans:
        async for records in _read(log, topic, partition, start, end, follow=False):
            yield partition, records


async def _follow_all(log: Log, topic: str, spans: Sequence[Span]) -> AsyncGenerator[tuple[int, list[Record]]]:
    queue: asyncio.Queue[tuple[int, list[Record]] | Exception | None] = asyncio.Queue(QUEUED_BATCHES)

    async def follow(span: Span) -> None:
        partition, start, end = span
        try:
            async for records in _read(log, topic, partition, start, end, follow=True):
                await queue.put((partition, records))
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = Tasks("consume")
    try:
        for span in spans:
            tasks.spawn(f"follow partition {span.partition}", follow(span))
        unfinished = len(spans)
        while unfinished:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                unfinished -= 1
            else:
                yield item
    finally:
        await tasks.close()


def _read(
    log: Log, topic: str, partition: int, start: int, end: int | None, *, follow: bool
) -> AsyncIterator[list[Record]]:
    limit = None if end is None else end - start
    return log.read_batches(topic, partition, start, limit=limit, follow=follow)


def _as_text(_: int, record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def _as_base64(_: int, record: Record) -> bytes:
    return b64encode(record.value or b"") + b"\n"


def _as_json(always_base64: bool) -> Callable[[int, Record], bytes]:
    import msgspec

    encode = msgspec.json.Encoder().encode

    def field(name: str, data: bytes | None) -> dict[str, str | None]:
        if data is None:
            return {name: None}
        if not always_base64:
            try:
                return {name: data.decode()}
            except UnicodeDecodeError:
                pass
        return {f"{name}_base64": b64encode(data).decode()}

    def line(partition: int, record: Record) -> bytes:
        fields: dict[str, Any] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
        fields |= field("key", record.key) | field("value", record.value)
        fields["headers"] = [{"name": name, **field("value", value)} for name, value in record.headers]
        return encode(fields) + b"\n"

    return line
