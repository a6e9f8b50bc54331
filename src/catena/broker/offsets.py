"""ListOffsets and OffsetForLeaderEpoch: where a log starts and ends, and what lies where.

Nothing is answered from an old view: the latest offset is linearizable, and an epoch is called fenced or unknown only
after the chain was read again. There are no transactions, so what is committed and what is not end at the same offset.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, cast

from catena.broker.base import Client, OpenLog
from catena.broker.handling import Logs, Refused, fault_of
from catena.errors import CatenaError
from catena.runtime.tasks import map_bounded
from catena.types import Epoch, Offset
from catena.virtual_log.chain import Chain
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_view import TopicView
from catena.wire.codes import Code
from catena.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from catena.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from catena.wire.requests import Request

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The version from which on a time stands for a place, as in Kafka."""

NONE = -1
AT_ONCE = 32


class _Found(NamedTuple):
    offset: Offset = NONE
    timestamp_ms: int = NONE
    epoch: Epoch = NONE


class _EpochEnd(NamedTuple):
    epoch: Epoch = NONE
    offset: Offset = NONE


class Offsets:
    def __init__(self, view: TopicView, open_log: OpenLog) -> None:
        self._view = view
        self._open_log = open_log

    async def list_offsets(self, request: Request, _client: Client) -> ListOffsetsResponse:
        body = cast(ListOffsetsRequest, request.body)
        asked = [(topic.name, partition) for topic in body.topics for partition in topic.partitions]
        logs = Logs(self._view, self._open_log)
        times = Counter((name, partition.partition_index) for name, partition in asked)

        async def find(item: tuple[str, ListOffsetsPartition]) -> ListOffsetsPartitionResponse:
            name, partition = item
            answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            try:
                if times[name, partition.partition_index] > 1:
                    raise Refused(Code.INVALID_REQUEST, "the partition stands twice in the request")
                if partition.timestamp < 0 and request.version < SINCE.get(partition.timestamp, request.version + 1):
                    raise Refused(Code.UNSUPPORTED_VERSION, f"v{request.version} has no time {partition.timestamp}")
                found = await logs.ask(name, partition.partition_index, lambda log: _find(log, partition))
            except (Refused, CatenaError) as error:
                answer.error_code = fault_of(error).code
            else:
                answer.offset, answer.timestamp, answer.leader_epoch = found
            return answer

        answers = iter(await map_bounded(AT_ONCE, find, asked))
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name=topic.name, partitions=[next(answers) for _ in topic.partitions])
                for topic in body.topics
            ]
        )

    async def offset_for_leader_epoch(self, request: Request, _client: Client) -> OffsetForLeaderEpochResponse:
        body = cast(OffsetForLeaderEpochRequest, request.body)
        asked = [(topic.topic, partition) for topic in body.topics for partition in topic.partitions]
        logs = Logs(self._view, self._open_log)

        async def find(item: tuple[str, OffsetForLeaderPartition]) -> EpochEndOffset:
            name, partition = item
            answer = EpochEndOffset(partition=partition.partition)
            try:
                end = await logs.ask(name, partition.partition, lambda log: _end_of_epoch(log, partition))
            except (Refused, CatenaError) as error:
                answer.error_code = fault_of(error).code
            else:
                answer.leader_epoch, answer.end_offset = end
            return answer

        answers = iter(await map_bounded(AT_ONCE, find, asked))
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(topic=topic.topic, partitions=[next(answers) for _ in topic.partitions])
                for topic in body.topics
            ]
        )


async def _find(log: VirtualLog, asked: ListOffsetsPartition) -> _Found:
    await check_epoch(log, asked.current_leader_epoch)
    if asked.timestamp == LATEST:
        tail = await log.tail()
        return _Found(tail, epoch=log.seen_epoch)
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        chain = await log.refresh()
        return _Found(chain.start, epoch=chain.epoch_at(chain.start))
    if asked.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _Found()  # that is about leaders' disks and what they still have to upload
    is_max = asked.timestamp == MAX_TIMESTAMP
    found = await (log.find_max_time() if is_max else log.find_time(asked.timestamp))
    if found is None:
        return _Found()
    return _Found(found.offset, found.timestamp_ms, (await log.chain()).epoch_at(found.offset))


async def check_epoch(log: VirtualLog, epoch: Epoch) -> None:
    """Raises Refused if the client's view of the leader is older or newer than the chain is."""
    if epoch in (NONE, log.seen_epoch):
        return
    current = (await log.refresh()).last.epoch
    if epoch < current:
        raise Refused(Code.FENCED_LEADER_EPOCH, f"{log.tp}: epoch {epoch} is over, and {current} has begun")
    if epoch > current:
        raise Refused(Code.UNKNOWN_LEADER_EPOCH, f"{log.tp}: epoch {epoch} is not known, {current} is the last")


async def _end_of_epoch(log: VirtualLog, asked: OffsetForLeaderPartition) -> _EpochEnd:
    await check_epoch(log, asked.current_leader_epoch)
    chain = await log.refresh()
    if asked.leader_epoch == chain.last.epoch:
        tail = await log.tail()
        refreshed = await log.chain()
        if refreshed.last.epoch == chain.last.epoch:
            return _EpochEnd(asked.leader_epoch, tail)
        chain = refreshed  # it has ended meanwhile
    return end_of_epoch(chain, asked.leader_epoch)


def end_of_epoch(chain: Chain, epoch: Epoch) -> _EpochEnd:
    """Where an epoch that is not the last one ended, by Kafka's rules.

    Of epochs that the chain does not have, those below the first one ended where that one begins, and those between
    two, which gave out no offsets, stand for the lower one. Those above the last are not known: -1.
    """
    above = next((base for base, each in chain.written if each > epoch), None)
    if above is None:
        return _EpochEnd()
    below = max((each for _, each in chain.written if each <= epoch), default=epoch)
    return _EpochEnd(below, max(above, chain.start))
