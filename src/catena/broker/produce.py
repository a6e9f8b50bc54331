"""Produce: batches as they came in, checked by their headers and CRC, appended to their logs.

A batch stays the slice of the request that it is. Its records are not looked at; only a topic that asks for it has its
batches recompressed or stamped with the time of the append.

A node that does not write refuses all of it, as one that is not the leader does in Kafka: clients then ask who is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple, cast

from catena.broker.base import Client, HangUp, Later, OpenLog
from catena.broker.error_codes import code_of
from catena.broker.handling import Refused, TopicLookup, fault_of
from catena.errors import CatenaError, UnknownPartition, UnknownTopic
from catena.formats.compression import Compression
from catena.formats.recompress import recompress, stamp_append_time, timestamp_fault
from catena.formats.record_batch import check_crc, parse_header
from catena.loglets.base import Entry
from catena.runtime import Clock, Tasks
from catena.types import Buffer, Buffers, Offset
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_configs import TopicSettings, settings_of
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord
from catena.wire.codes import Code
from catena.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from catena.wire.requests import Request
from catena.wire.schema import Message

ACKS = (-1, 0, 1)
"""A batch that is in the log is durable: there is nothing between one and all."""
BY_ID = 13
ZSTD_FROM = 7
FRAME_MAX_WASTE = 64 << 10


class _Append(NamedTuple):
    log: VirtualLog
    entry: Entry
    response: PartitionProduceResponse


class Produce:
    def __init__(self, view: TopicView, open_log: OpenLog, clock: Clock, tasks: Tasks, *, writes: bool = True) -> None:
        self._writes = writes
        self._view = view
        self._open_log = open_log
        self._clock = clock
        self._tasks = tasks

    async def produce(self, request: Request, _client: Client) -> Later:
        """Batches take their places here, in the order of the requests; the stores are waited for later."""
        body = cast(ProduceRequest, request.body)
        _cut_loose(body)
        topics, appends = TopicLookup(self._view), list[_Append]()
        response = ProduceResponse(
            responses=[await self._topic(topic, request.version, body, topics, appends) for topic in body.topic_data]
        )
        return Later(self._begin(appends, response, body.acks))

    def _begin(
        self, appends: list[_Append], response: ProduceResponse, acks: int
    ) -> asyncio.Future[Message | HangUp | None]:
        """Each append has a task that was made here: tasks start in the order in which they are made, and so the
        appends of this request take their places behind those of the one before it, however many each has."""
        if len(appends) == 1:
            return self._tasks.spawn("produce", self._append_one(appends[0], response, acks))
        running = [self._tasks.spawn("append", _caught(append.log.append(append.entry))) for append in appends]
        return self._tasks.spawn("produce", self._append_many(appends, running, response, acks))

    async def _topic(
        self,
        topic: TopicProduceData,
        version: int,
        body: ProduceRequest,
        topics: TopicLookup,
        appends: list[_Append],
    ) -> TopicProduceResponse:
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        record: TopicRecord | None = None
        fault: tuple[Code, str] | None = None
        if not self._writes:
            fault = Code.NOT_LEADER_OR_FOLLOWER, "this node does not have the role `write`: metadata names one that has"
        elif body.acks not in ACKS:
            fault = Code.INVALID_REQUIRED_ACKS, f"acks are -1, 0 or 1, not {body.acks}"
        elif body.transactional_id is not None:
            fault = Code.INVALID_REQUEST, "transactions are not supported yet"
        else:
            try:
                highest = max((data.index for data in topic.partition_data), default=0)
                topic_id = topic.topic_id if version >= BY_ID else None
                record = await topics.find(topic.name, topic_id, highest)
            except CatenaError as error:
                unknown_id = isinstance(error, UnknownTopic) and version >= BY_ID
                fault = Code.UNKNOWN_TOPIC_ID if unknown_id else code_of(error), str(error)
        for data in topic.partition_data:
            part = PartitionProduceResponse(index=data.index)
            answer.partition_responses.append(part)
            try:
                if record is None or fault is not None:
                    assert fault is not None
                    raise Refused(*fault)
                appends.append(self._place(record, data, version, part))
            except (Refused, CatenaError) as error:
                _refuse(part, *fault_of(error))
        return answer

    def _place(
        self, topic: TopicRecord, data: PartitionProduceData, version: int, part: PartitionProduceResponse
    ) -> _Append:
        if not 0 <= data.index < topic.partitions:
            raise UnknownPartition(topic.name, data.index, topic.partitions)
        settings = settings_of(topic.configs)
        entry = _check(data.records, version, settings)
        if settings.log_append_time or settings.compression is not None:
            entry, part.log_append_time_ms = _rewrite(entry, settings, self._clock.now_ms())
        elif settings.timestamp_before_max_ms is not None or settings.timestamp_after_max_ms is not None:
            fault = timestamp_fault(
                entry.data, self._clock.now_ms(), settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
            )
            if fault is not None:
                raise Refused(Code.INVALID_TIMESTAMP, fault)
        return _Append(self._open_log(topic, data.index), entry, part)

    async def _append_one(self, append: _Append, response: ProduceResponse, acks: int) -> Message | HangUp | None:
        self._tell(append, await _caught(append.log.append(append.entry)))
        return _answer(response, acks)

    async def _append_many(
        self,
        appends: list[_Append],
        running: list[asyncio.Task[Offset | CatenaError]],
        response: ProduceResponse,
        acks: int,
    ) -> Message | HangUp | None:
        for append, result in zip(appends, await asyncio.gather(*running), strict=True):
            self._tell(append, result)
        return _answer(response, acks)

    def _tell(self, append: _Append, result: Offset | CatenaError) -> None:
        if isinstance(result, int):
            append.response.base_offset = result
            append.response.log_start_offset = append.log.seen_start
            return
        if isinstance(result, UnknownTopic):
            self._view.forget(result.topic)
        _refuse(append.response, code_of(result), str(result))


def _answer(response: ProduceResponse, acks: int) -> Message | HangUp | None:
    if acks != 0:
        return response
    faults = [part for topic in response.responses for part in topic.partition_responses if part.error_code]
    if faults:
        # The only way to tell who does not listen; Kafka does so, too.
        return HangUp(f"a batch without acks was refused: {faults[0].error_message}")
    return None


def _cut_loose(body: ProduceRequest) -> None:
    """Batches stay in memory for a while, and so does the request that they are slices of: if most of it is something
    else, they are copied."""
    parts = [data for topic in body.topic_data for data in topic.partition_data if data.records]
    size = sum(len(part.records[0]) for part in parts if part.records)
    whole = parts[0].records[0] if parts and parts[0].records else b""
    if isinstance(whole, memoryview) and len(whole.obj) > 2 * size + FRAME_MAX_WASTE:  # type: ignore[arg-type]
        for part in parts:
            assert part.records
            part.records = [bytes(part.records[0])]


async def _caught(append: Awaitable[Offset]) -> Offset | CatenaError:
    try:
        return await append
    except CatenaError as error:
        return error


def _check(records: Buffers | None, version: int, settings: TopicSettings) -> Entry:
    """The one batch that a partition's part of a request holds."""
    data: Buffer = records[0] if records else b""
    header = parse_header(data)
    if header.length != len(data):
        raise Refused(Code.INVALID_RECORD, "a request has one batch for each partition, and this one has more")
    if header.length > settings.max_message_bytes:
        raise Refused(
            Code.MESSAGE_TOO_LARGE,
            f"a batch of {header.length} bytes, and max.message.bytes is {settings.max_message_bytes}",
        )
    check_crc(data, header)
    if header.record_count != header.count or header.is_control:
        raise Refused(Code.INVALID_RECORD, "a producer's batch has a record for each offset and is no control batch")
    if header.is_transactional:
        raise Refused(Code.INVALID_TXN_STATE, "transactions are not supported yet")
    if header.compression is Compression.ZSTD and version < ZSTD_FROM:
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_FROM}")
    return Entry(header, data)


def _rewrite(entry: Entry, settings: TopicSettings, now_ms: int) -> tuple[Entry, int]:
    data = entry.data
    if settings.compression is not None:
        data = recompress(data, settings.compression)
    if settings.log_append_time:
        data = stamp_append_time(data, now_ms)
    return Entry(parse_header(data), data), now_ms if settings.log_append_time else -1


def _refuse(part: PartitionProduceResponse, code: Code, message: str) -> None:
    part.error_code, part.error_message, part.base_offset = code, message, -1
