"""The log inside of a program: open a folder, append, read, follow. No server, and several processes may share it.

    async with catena.open("data") as log:
        await log.create_topic("orders", partitions=3)
        offset = await log.append("orders", "one coffee", partition=1, key="table 7")
        async for record in log.read("orders", 1):
            print(record.offset, record.key, record.value)

A `Log` remembers what topics' names stand for. When a topic turns out to be gone it looks again, once: the name may
have been given to a new one. What can be tried again safely is tried again for a while. What is raised is one of
`catena.errors`, whose classes say what to do.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

from catena.config import Settings, load
from catena.errors import Corrupt, InvalidBatch, OffsetOutOfRange, RetryLater, UnknownPartition, UnknownTopic
from catena.formats.compression import Compression
from catena.formats.records import MAX_TIMESTAMP, Headers, Record, iter_records
from catena.node import Node
from catena.producer import NewRecord, Producer
from catena.runtime import Clock, Entropy, SystemClock, SystemEntropy, Tasks
from catena.stores import Stores, open_stores
from catena.types import Offset
from catena.virtual_log.chain import Chain
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topics import TopicRecord

P = ParamSpec("P")
T = TypeVar("T")

Data: TypeAlias = bytes | str | None
"""A key or a value: text is stored as UTF-8; None is Kafka's null."""
HeadersGiven: TypeAlias = Mapping[str, Data] | Iterable[tuple[str, Data]]
Position: TypeAlias = Offset | Literal["earliest", "latest"]
CompressionName: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]

READ_BYTES = 1 << 20
LONG_POLL_S = 30.0
MAX_TRIES = 6
FIRST_PAUSE_S = 0.05


class Message(NamedTuple):
    """A record on its way into the log, where a value alone is not enough."""

    value: Data
    key: Data = None
    headers: HeadersGiven = ()
    timestamp_ms: int | None = None
    """Milliseconds since 1970; None: now."""


def open(
    data: str | os.PathLike[str] | None = None, *, config: str | os.PathLike[str] | None = None, **settings: Any
) -> AbstractAsyncContextManager[Log]:
    """Open a log, to be used as `async with catena.open("data") as log:`.

    `data` is the folder that holds it, made if it is not there; where nothing else is said, `data` in the current one.
    `config` is a TOML file with settings, and `settings` are single ones: `meta="postgres://..."`,
    `objects="s3://bucket/prefix"`, `diskless={"writer": {"batch_max_delay_ms": 50}}`. What is given here wins over the
    file. The environment is not looked at.
    """
    folder = None if data is None else os.fspath(data)
    return open_log(load(None if config is None else os.fspath(config), data=folder, **settings))


@asynccontextmanager
async def open_log(
    settings: Settings, clock: Clock | None = None, entropy: Entropy | None = None
) -> AsyncIterator[Log]:
    clock, entropy = clock or SystemClock(), entropy or SystemEntropy()
    async with open_stores(settings, clock, entropy) as stores:
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
        log = Log(node, stores, clock, entropy)
        await node.incarnation.start(raise_now=False)
        try:
            yield log
        finally:
            try:
                await log.close()
            finally:
                await node.incarnation.close()


class Log:
    """Topics and their records. Made by `catena.open`, which also closes it.

    Every method may be called by any number of tasks at once. A partition is named by its topic and its number, which
    is 0 unless another is given.
    """

    def __init__(self, node: Node, stores: Stores, clock: Clock, entropy: Entropy) -> None:
        self.node = node
        """What this stands on, for whoever wants to look below."""
        self.stores = stores
        self._clock = clock
        self._entropy = entropy
        self._tasks = Tasks("appends")
        self._logs: dict[tuple[str, int], VirtualLog] = {}
        self._producers: dict[tuple[str, int], Producer] = {}

    async def create_topic(self, name: str, partitions: int = 1) -> TopicRecord:
        """Make a topic: 1 to 249 letters, digits, dots, underscores and dashes. Raises TopicExists if there is one."""
        return await self._patiently(self.node.topics.create, name, partitions)

    async def topic(self, name: str) -> TopicRecord:
        """What is known of one topic: its id, its number of partitions, when it was made."""
        return await self._patiently(self.node.topics.get, name)

    async def topics(self) -> list[TopicRecord]:
        """All topics, by name."""
        return await self._patiently(self.node.topics.list)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all that it holds. Returns once nothing can be appended to it any more."""
        await self._patiently(self.node.topics.delete, name)

    async def append(
        self,
        topic: str,
        value: Data,
        *,
        partition: int = 0,
        key: Data = None,
        headers: HeadersGiven = (),
        timestamp_ms: int | None = None,
    ) -> Offset:
        """Append one record; return its offset once it is durable, and every reader sees it.

        Appends of this `Log` to a partition keep the order of the calls, and each is in the log once, also after
        retries. Many at once cost little more than one: `await asyncio.gather(*(log.append(t, v) for v in values))`.

        Raises RetryLater (after a minute of trouble) if the record is not in the log, and OutcomeUnknown if nobody
        can tell; LogSealed if the partition was sealed.
        """
        record = _new_record(Message(value, key, headers, timestamp_ms), self._clock.now_ms())
        return await self._append(topic, partition, [record], Compression.NONE)

    async def append_batch(
        self,
        topic: str,
        values: Iterable[Data | Message],
        *,
        partition: int = 0,
        compression: CompressionName = "none",
    ) -> range:
        """Append many records at once, in one piece: all of them or none. Returns their offsets.

        This is the fast way in: batches of about a megabyte are best. `compression` saves bytes for CPU.
        """
        now_ms = self._clock.now_ms()
        records = [_new_record(each if isinstance(each, Message) else Message(each), now_ms) for each in values]
        if not records:
            raise InvalidBatch("there is nothing to append: a batch needs one record at least")
        if compression.upper() not in Compression.__members__:
            raise ValueError(f"{compression!r} is no compression: none, gzip, snappy, lz4, zstd are")
        first = await self._append(topic, partition, records, Compression[compression.upper()])
        return range(first, first + len(records))

    async def read(
        self, topic: str, partition: int = 0, start: Position = "earliest", limit: int | None = None
    ) -> AsyncIterator[Record]:
        """The records from `start` up to where the log ends now (when the loop begins), `limit` at the most.

            async for record in log.read("orders", start=1000, limit=10): ...

        Raises OffsetOutOfRange, which says what the log holds, if `start` is before or beyond it.
        """
        async for records in self.read_batches(topic, partition, start, limit=limit):
            for record in records:
                yield record

    async def follow(self, topic: str, partition: int = 0, start: Position = "latest") -> AsyncIterator[Record]:
        """The records from `start` on, and then each new one as it comes, for ever: leave the loop with `break`.

        It sleeps while there is nothing new. A sealed log is waited for until it is reopened.
        """
        async for records in self.read_batches(topic, partition, start, follow=True):
            for record in records:
                yield record

    async def read_batches(
        self,
        topic: str,
        partition: int = 0,
        start: Position = "earliest",
        *,
        limit: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[list[Record]]:
        """As `read` does, or `follow`, but about a megabyte of records at a time: the fast way out."""
        log, offset, tail = await self._ask(topic, partition, _bounds, start)
        end = None if follow else tail
        if limit is not None:
            end = offset + limit if end is None else min(end, offset + limit)
        while end is None or offset < end:
            if offset == tail:
                await self._patiently(log.wait_for_tail, offset, LONG_POLL_S)
                tail = await self._patiently(log.tail)
                continue
            records, offset = await self._read(log, offset)
            tail = max(tail, offset)
            if end is not None and offset > end:
                records = [record for record in records if record.offset < end]
            if records:
                yield records

    async def start(self, topic: str, partition: int = 0) -> Offset:
        """The first offset that can be read: 0 until the log is trimmed."""
        return await self._ask(topic, partition, VirtualLog.start)

    async def tail(self, topic: str, partition: int = 0) -> Offset:
        """The offset that the next record will get; greater than that of any record that was acked before the call."""
        return await self._ask(topic, partition, VirtualLog.tail)

    async def find_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> Offset | None:
        """The offset of the first record at or after this time (milliseconds since 1970), if there is one."""
        found = await self._ask(topic, partition, VirtualLog.find_time, timestamp_ms)
        return found.offset if found is not None else None

    async def trim(self, topic: str, offset: Offset, partition: int = 0) -> Offset:
        """Give up the records before `offset`, for good. Returns where the log starts now."""
        return await self._ask(topic, partition, VirtualLog.trim, offset)

    async def seal(self, topic: str, partition: int = 0) -> Offset:
        """End the log for now: appends, of all processes, raise LogSealed until it is reopened. Returns its tail."""
        return await self._ask(topic, partition, VirtualLog.seal)

    async def reopen(self, topic: str, partition: int = 0) -> Chain:
        """Let a sealed log take appends again, in a new link of the topic's kind. An open log is left as it is."""
        return await self._ask(topic, partition, _reopen)

    async def reconfigure(self, topic: str, partition: int = 0, *, kind: str) -> Chain:
        """Move the log on to a new link of this kind, `diskless` or `memory`, while appends and reads go on.

        What is in a `memory` link is gone when the process ends; it is there to try this out.
        """
        return await self._ask(topic, partition, VirtualLog.reconfigure, kind)

    async def chain(self, topic: str, partition: int = 0) -> Chain:
        """The links that the log is made of."""
        return await self._ask(topic, partition, VirtualLog.refresh)

    async def close(self) -> None:
        """Answer what was appended, then stop. `async with` does it."""
        for producer in list(self._producers.values()):
            await producer.drain()
        await self._tasks.close()
        await self.node.close()

    async def _append(
        self, topic: str, partition: int, records: Sequence[NewRecord], compression: Compression
    ) -> Offset:
        # Nothing is awaited before the producer has the records: that keeps the order of the calls.
        producer = self._producers.get((topic, partition))
        if producer is None:
            find = functools.partial(self._find, topic, partition)
            producer = Producer(f"{topic}/{partition}", find, self._clock, self._entropy, self._tasks)
            self._producers[topic, partition] = producer
        try:
            return await producer.append(records, compression)
        except (UnknownTopic, UnknownPartition):
            self._producers.pop((topic, partition), None)
            raise

    async def _ask(
        self,
        topic: str,
        partition: int,
        work: Callable[Concatenate[VirtualLog, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do this with the log; if its topic is gone, with that of the topic which has its name now."""
        log = await self._find(topic, partition)
        try:
            return await self._patiently(work, log, *args, **kwargs)
        except UnknownTopic:
            log = await self._find(topic, partition, gone=log)
        return await self._patiently(work, log, *args, **kwargs)

    async def _find(self, topic: str, partition: int, gone: VirtualLog | None = None) -> VirtualLog:
        log = self._logs.get((topic, partition))
        if log is None or log is gone:
            log = await self._patiently(self.node.log, topic, partition)
            if log is gone:
                raise UnknownTopic(topic)
            self._logs[topic, partition] = log
        return log

    async def _patiently(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Try again, a few times, what was surely not done."""
        for tried in range(1, MAX_TRIES):
            try:
                return await work(*args, **kwargs)
            except RetryLater:
                await self._clock.sleep(FIRST_PAUSE_S * 2**tried * (0.5 + self._entropy.jitter() / 2))
        return await work(*args, **kwargs)

    async def _read(self, log: VirtualLog, offset: Offset) -> tuple[list[Record], Offset]:
        """Records from `offset` on, which is below the tail, and the offset to go on with."""
        batches = await self._patiently(log.read, offset, READ_BYTES)
        if not batches:
            raise Corrupt(f"{log.tp}: nothing is found at offset {offset}, and the log reaches beyond it")
        try:
            records = [record for batch in batches for record in iter_records(batch.data, batch.offset)]
        except InvalidBatch as error:
            raise Corrupt(f"{log.tp}: a batch at or after offset {offset} can't be read: {error}") from error
        if records and records[0].offset < offset:
            records = [record for record in records if record.offset >= offset]
        return records, batches[-1].end


async def _bounds(log: VirtualLog, start: Position) -> tuple[VirtualLog, Offset, Offset]:
    """The log, the offset that `start` means, and where the log ends."""
    tail = await log.tail()
    if start == "latest":
        return log, tail, tail
    earliest = await log.start()
    offset = earliest if start == "earliest" else start
    if not isinstance(offset, int):
        raise TypeError(f"start is an offset, 'earliest' or 'latest', not {start!r}")
    if not earliest <= offset <= tail:
        raise OffsetOutOfRange(offset, earliest, tail)
    return log, offset, tail


async def _reopen(log: VirtualLog) -> Chain:
    chain = await log.refresh()
    return chain if chain.last.is_open else await log.reconfigure(log.kind)


def _new_record(message: Message, now_ms: int) -> NewRecord:
    timestamp = now_ms if message.timestamp_ms is None else message.timestamp_ms
    if not 0 <= timestamp <= MAX_TIMESTAMP:
        raise InvalidBatch(f"{timestamp} is not a timestamp: give milliseconds since 1970")
    return _as_bytes("key", message.key), _as_bytes("value", message.value), _as_headers(message.headers), timestamp


def _as_headers(headers: HeadersGiven) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    given = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is text, not {name!r}")
        _as_bytes("name of a header", name)
        given.append((name, _as_bytes(f"header {name}", value)))
    return tuple(given)


def _as_bytes(what: str, data: Data) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if not isinstance(data, str):
        raise TypeError(f"the {what} is bytes, text or None, not {type(data).__name__}")
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise InvalidBatch(f"the {what} is not Unicode text: {error}") from None
