"""Fetch: batches as they are stored, with the base offset and leader epoch put in front of each.

A fetch that finds less than it asks for waits for news of its logs, not for a clock; when its time is over it looks
once more in the store, so that what other nodes acked is never denied. Sessions are not offered: the answer says 0,
and clients then name their partitions in every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from catena.broker.base import AnswerBudget, Client, OpenLog
from catena.broker.error_codes import code_of
from catena.broker.handling import TopicLookup
from catena.broker.tails import Tails
from catena.errors import CatenaError, UnknownPartition, UnknownTopic
from catena.formats.record_batch import WIRE_PREFIX, wire_prefix
from catena.loglets.base import Batch
from catena.runtime import Clock, Tasks
from catena.types import Buffer
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord
from catena.wire.codes import Code
from catena.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from catena.wire.requests import Request

BY_ID = 13
AT_ONCE = 16
"""Partitions that one request reads at the same time."""
MAX_BYTES = 64 << 20
"""Of one answer, whatever the client asks for."""
MAX_WAIT_S = 300.0
LAST_LOOKS_S = 0.02
LEAST_BYTES = 1 << 20
"""What a fetch may bring however much other clients have not taken yet."""


class _Target(NamedTuple):
    log: VirtualLog
    asked: FetchPartition
    answer: PartitionData


class _News:
    """Of which logs something may be new, and the wait for it."""

    def __init__(self) -> None:
        self.logs: dict[VirtualLog, None] = {}
        self._came = asyncio.Event()

    def tell(self, of: VirtualLog) -> None:
        self.logs[of] = None
        self._came.set()

    def end(self) -> None:
        self._came.set()

    def take(self) -> dict[VirtualLog, None]:
        self._came.clear()
        logs, self.logs = self.logs, {}
        return logs

    async def wait(self, max_wait_s: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, max_wait_s)):
                await self._came.wait()
        except TimeoutError:
            pass


class Fetch:
    def __init__(
        self, view: TopicView, open_log: OpenLog, clock: Clock, tasks: Tasks, budget: AnswerBudget | None = None
    ) -> None:
        self._view = view
        self._budget = budget or AnswerBudget(MAX_BYTES)
        self._open_log = open_log
        self._clock = clock
        self._tails = Tails(clock, tasks)
        self._waiting: dict[_News, None] = {}
        self._ending = False

    def end_waits(self) -> None:
        """The node ends: nobody waits any more for what others will write."""
        self._ending = True
        for news in self._waiting:
            news.end()

    async def fetch(self, request: Request, _client: Client) -> FetchResponse:
        body = cast(FetchRequest, request.body)
        if body.session_id != 0:
            return FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
        topics, targets = TopicLookup(self._view), list[_Target]()
        response = FetchResponse(
            responses=[await self._topic(topic, request.version, topics, targets) for topic in body.topics]
        )
        return await self._fetch(body, targets, response)

    async def _topic(
        self, topic: FetchTopic, version: int, topics: TopicLookup, targets: list[_Target]
    ) -> FetchableTopicResponse:
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        record: TopicRecord | None = None
        code = Code.NONE
        try:
            highest = max((asked.partition for asked in topic.partitions), default=0)
            record = await topics.find(topic.topic, topic.topic_id if version >= BY_ID else None, highest)
        except CatenaError as error:
            code = Code.UNKNOWN_TOPIC_ID if isinstance(error, UnknownTopic) and version >= BY_ID else code_of(error)
        for asked in topic.partitions:
            part = PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1)
            answer.partitions.append(part)
            if record is None:
                continue
            if not 0 <= asked.partition < record.partitions:
                part.error_code = code_of(UnknownPartition(record.name, asked.partition, record.partitions))
                continue
            targets.append(_Target(self._open_log(record, asked.partition), asked, part))
        return answer

    async def _fetch(self, body: FetchRequest, targets: list[_Target], response: FetchResponse) -> FetchResponse:
        deadline = self._clock.monotonic() + min(body.max_wait_ms / 1000, MAX_WAIT_S)
        if body.max_wait_ms > 0:
            # Many who wait for nothing end together, so that their last looks are one.
            deadline += -deadline % LAST_LOOKS_S
        news = _News()
        subscribed = False
        try:
            while True:
                last_look = self._ending or self._clock.monotonic() >= deadline
                max_bytes = min(body.max_bytes, MAX_BYTES, max(self._budget.left, LEAST_BYTES))
                size = await self._read_all(targets, max_bytes, None if last_look else news.take())
                failed = any(part.error_code for topic in response.responses for part in topic.partitions)
                if size >= body.min_bytes or failed or last_look or not targets:
                    return response
                if not subscribed:
                    subscribed = True
                    self._waiting[news] = None
                    for target in targets:
                        self._tails.subscribe(target.log, news.tell)
                    continue  # what came in before the subscription is not told
                await news.wait(deadline - self._clock.monotonic())
        finally:
            if subscribed:
                del self._waiting[news]
                for target in targets:
                    self._tails.unsubscribe(target.log, news.tell)

    async def _read_all(
        self, targets: Sequence[_Target], max_bytes: int, news: Mapping[VirtualLog, None] | None
    ) -> int:
        """Fill in the answers; returns how many bytes of batches they hold.

        Where a client is at the tail as it was last seen and there is no news the store is not asked; with None it is.
        """
        size = 0
        for start in range(0, len(targets), AT_ONCE):
            some = targets[start : start + AT_ONCE]
            # Shared by those that are read at once: each brings a batch at least, and what is too much is not sent.
            left = max(max_bytes - size, 0) // len(some) if size else max(1, max_bytes // len(some))
            if len(some) == 1:  # as most are: a task less
                found = [await self._read(some[0], left, news)]
            else:
                found = await asyncio.gather(*(self._read(target, left, news) for target in some))
            for target, batches in zip(some, found, strict=True):
                size += _fill(target, batches, max_bytes - size, size == 0)
        return size

    async def _read(self, target: _Target, left: int, news: Mapping[VirtualLog, None] | None) -> list[Batch]:
        asked, answer, log = target.asked, target.answer, target.log
        if left <= 0:
            return []
        try:
            await self._check_epoch(target)
            if answer.error_code:
                return []
            if news is not None and log not in news and asked.fetch_offset == log.seen_tail:
                return []
            return await log.read(asked.fetch_offset, min(left, max(1, asked.partition_max_bytes)))
        except CatenaError as error:
            if isinstance(error, UnknownTopic):
                self._view.forget(error.topic)
            answer.error_code = code_of(error)
            return []

    async def _check_epoch(self, target: _Target) -> None:
        epoch = target.asked.current_leader_epoch
        chain = await target.log.chain()
        if epoch in (-1, chain.last.epoch):
            return
        chain = await target.log.refresh()
        if epoch < chain.last.epoch:
            target.answer.error_code = Code.FENCED_LEADER_EPOCH
        elif epoch > chain.last.epoch:
            target.answer.error_code = Code.UNKNOWN_LEADER_EPOCH


def _fill(target: _Target, batches: list[Batch], left: int, is_first: bool) -> int:
    """The first batch of an answer is sent whatever its size, since a client could never get past it otherwise."""
    answer, log = target.answer, target.log
    if answer.error_code:
        return 0
    records: list[Buffer] = []
    size = 0
    for batch in batches:
        length = len(batch.data)
        if size + length > left and not (is_first and not records):
            break
        size += length
        records += (wire_prefix(length, batch.offset, log.epoch_at(batch.offset)), batch.data[WIRE_PREFIX.size :])
    answer.records = records
    answer.high_watermark = answer.last_stable_offset = log.seen_tail
    answer.log_start_offset = log.seen_start
    return size
