"""POST /consume: records of many partitions, from an offset of each on; waits for more as Kafka's fetches do.

What is waited for is counted in bytes of batches as they are stored, as Kafka counts them; what is answered is counted
in bytes of records, since a batch may be compressed, and is cut by the record. Each answer says where to go on.

Partitions are read at the same time, 16 of them, and a blob that several of these share is got once
(`loglets.together`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from catena.broker.base import OpenLog
from catena.broker.handling import Logs
from catena.broker.long_polls import LongPolls, News
from catena.counting import Sent
from catena.errors import CatenaError, OffsetOutOfRange, UnknownTopic
from catena.http.base import HttpRequest, HttpResponse
from catena.loglets.base import Batch
from catena.loglets.together import read_together
from catena.rest import bodies
from catena.rest.answers import answer, name_of
from catena.rest.bodies import (
    MAX_RECORDS,
    Consumed,
    ConsumePartition,
    ConsumeRequest,
    ConsumeResponse,
    Data,
    NotConsumed,
)
from catena.rest.decoding import Asked, Decoded, decode
from catena.rest.hot import HotRecords, Text
from catena.runtime import Clock
from catena.types import Offset, TopicPartition
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_view import TopicView

AT_ONCE = 16
"""Partitions that one request reads at the same time."""
LEAST_BYTES = 256 << 10
"""What an answer may have however much other clients have not taken yet."""

_decoder = msgspec.json.Decoder(ConsumeRequest)


class _Target:
    __slots__ = ("asked", "batches", "error", "log")

    def __init__(self, asked: ConsumePartition) -> None:
        self.asked = asked
        self.log: VirtualLog | None = None
        self.batches: list[Batch] = []
        self.error: CatenaError | None = None


class Consume:
    def __init__(
        self,
        view: TopicView,
        open_log: OpenLog,
        polls: LongPolls,
        sent: Sent,
        hot: HotRecords,
        clock: Clock,
        room: Callable[[], int],
        max_waiting: int,
    ) -> None:
        """`room`: bytes of answers that there is room for now. `max_waiting`: past it nobody waits for more to come."""
        self._view = view
        self._open_log = open_log
        self._polls = polls
        self._sent = sent
        self._hot = hot
        self._clock = clock
        self._room = room
        self._max_waiting = max_waiting
        self._waiting = 0

    async def consume(self, request: HttpRequest) -> HttpResponse:
        body = bodies.decode(_decoder, request.body)
        logs = Logs(self._view, self._open_log)
        targets = [_Target(asked) for asked in body.topic_partitions]
        for target in targets:
            try:
                target.log = await logs.find(target.asked.topic, target.asked.partition)
            except CatenaError as error:
                target.error = error
        await self._poll(body, targets, request.ended)
        results = await self._results(body, targets)
        errors = sum(not result.ok for result in results)
        batches = [batch for target in targets for batch in target.batches]
        records = sum(result.count for result in results if isinstance(result, Consumed))
        self._sent.add(len(batches), records, sum(len(batch.data) for batch in batches))
        return answer(ConsumeResponse(results, len(results) - errors, errors), 409 if errors else 200)

    async def _poll(self, body: ConsumeRequest, targets: Sequence[_Target], ended: asyncio.Future[None] | None) -> None:
        found = [target for target in targets if target.log is not None]
        logs = [target.log for target in found if target.log is not None]

        async def look(news: News | None) -> bool:
            size = await self._read_all(found, self._most(body), news)
            return size >= body.min_bytes or any(target.error for target in targets)

        max_wait_s = body.max_wait_ms / 1000 if self._waiting < self._max_waiting else 0.0
        self._waiting += 1
        try:
            await self._polls.look_until(logs, max_wait_s, look, ended)
        finally:
            self._waiting -= 1

    def _most(self, body: ConsumeRequest) -> int:
        return min(body.max_bytes, bodies.MAX_BYTES, max(self._room(), LEAST_BYTES))

    async def _read_all(self, targets: Sequence[_Target], max_bytes: int, news: News | None) -> int:
        """Returns how many bytes of batches were found."""
        size = 0
        for start in range(0, len(targets), AT_ONCE):
            some = targets[start : start + AT_ONCE]
            left = max(max_bytes - size, 0) // len(some) if size else max(1, max_bytes // len(some))
            await read_together([partial(self._read, target, left, news) for target in some])
            size += sum(len(batch.data) for target in some for batch in target.batches)
        return size

    async def _read(self, target: _Target, left: int, news: News | None) -> None:
        log, asked = target.log, target.asked
        assert log is not None
        target.batches = []
        if left <= 0 or self._polls.has_nothing(log, asked.fetch_offset, news):
            return
        try:
            target.batches = await log.read(asked.fetch_offset, min(left, max(1, asked.partition_max_bytes)))
        except CatenaError as error:
            if isinstance(error, UnknownTopic):
                self._view.forget(error.topic)
            target.error = error

    async def _results(self, body: ConsumeRequest, targets: Sequence[_Target]) -> list[Consumed | NotConsumed]:
        results: list[Consumed | NotConsumed] = []
        left, count = self._most(body), 0
        for target in targets:
            if target.error is None:
                try:
                    result, size = self._consumed(target, left, not count, body.details)
                except CatenaError as error:
                    target.error = error
                else:
                    results.append(result)
                    count += result.count
                    # Records without a byte, and what `details` tells of each, are in no size.
                    left = max(0, left - size) if count < MAX_RECORDS else 0
                    if result.count > bodies.LONG:
                        await self._clock.sleep(0)  # to decode them took a while: let others go on
                    continue
            results.append(_not_consumed(target, target.error))
        return results

    def _consumed(self, target: _Target, left: int, is_first: bool, details: bool) -> tuple[Consumed, int]:
        asked, log = target.asked, target.log
        assert log is not None
        batches = target.batches if left or is_first else []
        wanted = Asked(asked.fetch_offset, min(left, asked.partition_max_bytes), is_first, details)
        hot = self._found_hot(log.tp, batches, wanted)
        if hot is not None and wanted.start == batches[0].offset and hot.size <= wanted.max_bytes:
            records: Any = msgspec.Raw(b"[%b]" % hot.json)
            first, following, count, offsets, size = wanted.start, batches[-1].end, hot.records, None, hot.size
        else:
            decoded = decode(batches, log.tp, wanted) if hot is None else _cut(hot, batches[0].offset, wanted)
            records, first, following, offsets, size = decoded
            count = len(records)
        result = Consumed(
            asked.topic,
            asked.partition,
            True,
            first,
            following,
            max(log.seen_tail, following),
            log.seen_start,
            count,
            records,
            offsets,
        )
        return result, size

    def _found_hot(self, tp: TopicPartition, batches: Sequence[Batch], wanted: Asked) -> Text | None:
        if wanted.details or not batches:
            return None
        found = self._hot.find(tp, batches)
        return None if found is None or found.records > MAX_RECORDS else found


def _cut(text: Text, offset: Offset, wanted: Asked) -> Decoded:
    """What is wanted of these records, the first of which has this offset."""
    records = text.listed()[max(0, wanted.start - offset) :]
    size = fits = 0
    for record in records:
        length = len(record.encode())
        if size + length > wanted.max_bytes and (fits or not wanted.at_least_one):
            break
        size += length
        fits += 1
    told: list[Data] = [*records[:fits]]
    return Decoded(told, wanted.start, wanted.start + fits, None, size)


def _not_consumed(target: _Target, error: CatenaError) -> NotConsumed:
    asked = target.asked
    start = tail = None
    if isinstance(error, OffsetOutOfRange):
        start, tail = error.start, error.tail
    return NotConsumed(asked.topic, asked.partition, False, name_of(error), str(error), tail, start)
