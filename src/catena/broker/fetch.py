"""Fetch: batches as they are stored, with the base offset and leader epoch put in front of each.

A fetch that finds less than it asks for waits for news of its logs (`long_polls`). Sessions are not offered: the
answer says 0, and clients then name their partitions in every request.

A node that does not have the role `read` sends clients on to one that has (`sending_on`), as a leader sends those of
other racks to followers in Kafka: from version 11 on, by the preferred read replica. Who asks in an older version can't
be told of it, and is served here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, cast

from catena.broker.base import AnswerBudget, Client, OpenLog
from catena.broker.error_codes import code_of
from catena.broker.handling import TopicLookup
from catena.broker.long_polls import LongPolls, News
from catena.cluster.placement import NO_NODE, NodeId, PartitionOf
from catena.counting import Sent
from catena.errors import CatenaError, UnknownPartition, UnknownTopic
from catena.formats.record_batch import WIRE_PREFIX, wire_prefix
from catena.loglets.base import Batch
from catena.loglets.together import read_together
from catena.types import Buffer, Offset
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
PREFERRED_SINCE = 11
LEAST_BYTES = 1 << 20
"""What a fetch may bring however much other clients have not taken yet."""


class _Target(NamedTuple):
    topic: TopicRecord
    log: VirtualLog
    asked: FetchPartition
    answer: PartitionData

    @property
    def of(self) -> PartitionOf:
        return PartitionOf(self.topic.topic_id, self.asked.partition, self.topic.partitions)


class _Filled(NamedTuple):
    """What answers hold."""

    bytes: int = 0
    batches: int = 0
    records: int = 0


Elsewhere: TypeAlias = Callable[[PartitionOf, Offset, Client, str], NodeId | None]
"""Where it is read instead from this offset on, by this client of this rack; NO_NODE: nowhere. None: here."""
Moved: TypeAlias = Callable[[Iterable[PartitionOf], Client], Sequence[bool]]
"""Of which of these this client is to be told that another node leads them; empty: of none."""


class Fetch:
    def __init__(
        self,
        view: TopicView,
        open_log: OpenLog,
        polls: LongPolls,
        budget: AnswerBudget | None = None,
        elsewhere: Elsewhere | None = None,
        moved: Moved | None = None,
    ) -> None:
        """`elsewhere`: others read, and this node does not. None: it does."""
        self._elsewhere = elsewhere
        self._moved = moved
        self._view = view
        self._budget = budget or AnswerBudget(MAX_BYTES)
        self._open_log = open_log
        self._polls = polls
        self.sent = Sent()

    async def fetch(self, request: Request, client: Client) -> FetchResponse:
        body = cast(FetchRequest, request.body)
        if body.session_id != 0:
            return FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
        topics, targets = TopicLookup(self._view), list[_Target]()
        response = FetchResponse(
            responses=[await self._topic(topic, request.version, topics, targets) for topic in body.topics]
        )
        if request.version >= PREFERRED_SINCE and self._send_on(targets, client, body.rack_id):
            return response
        self._tell_moved(targets, client)
        return await self._fetch(body, targets, response)

    def _send_on(self, targets: Sequence[_Target], client: Client, rack: str) -> bool:
        """Whether something of it is to be read elsewhere. Then that is answered at once, and the client asks again."""
        if self._elsewhere is None:
            return False
        sent = False
        for target in targets:
            reader = self._elsewhere(target.of, target.asked.fetch_offset, client, rack)
            if reader is None:
                continue
            sent = True
            target.answer.preferred_read_replica = reader
            if reader == NO_NODE:
                target.answer.error_code = Code.REPLICA_NOT_AVAILABLE
        return sent

    def _tell_moved(self, targets: Sequence[_Target], client: Client) -> None:
        """Those are answered at once, with what the others have; the client then asks who leads."""
        moved = self._moved((target.of for target in targets), client) if self._moved is not None else ()
        for target, has_moved in zip(targets, moved, strict=False):
            if has_moved:
                target.answer.error_code = Code.NOT_LEADER_OR_FOLLOWER

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
            targets.append(_Target(record, self._open_log(record, asked.partition), asked, part))
        return answer

    async def _fetch(self, body: FetchRequest, targets: list[_Target], response: FetchResponse) -> FetchResponse:
        filled = _Filled()

        async def look(news: News | None) -> bool:
            nonlocal filled
            max_bytes = min(body.max_bytes, MAX_BYTES, max(self._budget.left, LEAST_BYTES))
            filled = await self._read_all(targets, max_bytes, news)
            failed = any(part.error_code for topic in response.responses for part in topic.partitions)
            return filled.bytes >= body.min_bytes or failed or not targets

        max_wait_s = min(body.max_wait_ms / 1000, MAX_WAIT_S)
        await self._polls.look_until([target.log for target in targets], max_wait_s, look)
        self.sent.add(filled.batches, filled.records, filled.bytes)
        return response

    async def _read_all(self, targets: Sequence[_Target], max_bytes: int, news: News | None) -> _Filled:
        """Fill in the answers; returns what they hold.

        Where a client is at the tail as it was last seen and there is no news the store is not asked; with None it is.
        """
        size = count = records = 0
        for start in range(0, len(targets), AT_ONCE):
            some = targets[start : start + AT_ONCE]
            # Shared by those that are read at once: each brings a batch at least, and what is too much is not sent.
            left = max(max_bytes - size, 0) // len(some) if size else max(1, max_bytes // len(some))
            found = await read_together([partial(self._read, target, left, news) for target in some])
            for target, batches in zip(some, found, strict=True):
                filled = _fill(target, batches, max_bytes - size, size == 0)
                size, count, records = size + filled.bytes, count + filled.batches, records + filled.records
        return _Filled(size, count, records)

    async def _read(self, target: _Target, left: int, news: News | None) -> list[Batch]:
        asked, answer, log = target.asked, target.answer, target.log
        if left <= 0:
            return []
        try:
            if not answer.error_code:
                await self._check_epoch(target)
            if answer.error_code:
                return []
            if self._polls.has_nothing(log, asked.fetch_offset, news):
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


def _fill(target: _Target, batches: list[Batch], left: int, is_first: bool) -> _Filled:
    """The first batch of an answer is sent whatever its size, since a client could never get past it otherwise."""
    answer, log = target.answer, target.log
    if answer.error_code:
        return _Filled()
    records: list[Buffer] = []
    size = count = 0
    for batch in batches:
        length = len(batch.data)
        if size + length > left and not (is_first and not records):
            break
        size += length
        count += batch.count
        records += (wire_prefix(length, batch.offset, log.epoch_at(batch.offset)), batch.data[WIRE_PREFIX.size :])
    answer.records = records
    answer.high_watermark = answer.last_stable_offset = log.seen_tail
    answer.log_start_offset = log.seen_start
    return _Filled(size, len(records) // 2, count)
