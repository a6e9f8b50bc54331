"""DescribeLogDirs and DescribeProducers: what lies behind a partition.

There are no folders: all partitions are in the object store. A broker tells of one log dir, named "catena", with the
partitions that it leads, so that those who add up all brokers count each once. The size of a partition is that of its
runs: exact where these are few, else an estimate (`virtual_log/sizes.py`). A request looks at `MAX_SIZED` partitions at
the most; those beyond have the size -1, and so have those whose records are in the memory of another node.
"""

from __future__ import annotations

from typing import cast

from catena.broker.base import Client, OpenLog
from catena.broker.configs import LOG_DIR
from catena.broker.handling import Logs, Refused, fault_of
from catena.cluster.membership import Membership
from catena.cluster.placement import PartitionOf
from catena.errors import CatenaError, StoreRefused, UnknownTopic
from catena.loglets.diskless.records import decode_control, decode_producer
from catena.loglets.producers import ProducerState, unexpired
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore
from catena.runtime import Clock
from catena.runtime.tasks import map_bounded
from catena.types import TopicPartition
from catena.virtual_log.handoff import load_handoff
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.sizes import estimated_size
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord
from catena.wire.codes import Code
from catena.wire.messages import describe_producers as wire
from catena.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from catena.wire.requests import Request

MAX_SIZED = 1000
NOT_KNOWN = -1
SIZES_AT_ONCE = 32
PARTITIONS_AT_ONCE = 8
MAX_PRODUCERS = 10_000
"""Of a partition. More are not told of."""


class Describe:
    def __init__(
        self, membership: Membership, view: TopicView, open_log: OpenLog, meta: MetaStore, clock: Clock
    ) -> None:
        self._membership = membership
        self._view = view
        self._open_log = open_log
        self._meta = meta
        self._clock = clock

    async def describe_log_dirs(self, request: Request, _client: Client) -> DescribeLogDirsResponse:
        body = cast(DescribeLogDirsRequest, request.body)
        asked = self._led(body)
        result = DescribeLogDirsResult(log_dir=LOG_DIR)
        logs = [self._open_log(topic, number) for topic, numbers in asked for number in numbers]
        try:
            sizes = await map_bounded(SIZES_AT_ONCE, self._size, logs[:MAX_SIZED])
        except CatenaError as error:
            result.error_code = fault_of(error).code
            return DescribeLogDirsResponse(results=[result])
        following = iter(sizes)
        result.topics = [
            DescribeLogDirsTopic(
                name=topic.name,
                partitions=[
                    DescribeLogDirsPartition(partition_index=number, partition_size=next(following, NOT_KNOWN))
                    for number in numbers
                ],
            )
            for topic, numbers in asked
        ]
        return DescribeLogDirsResponse(results=[result])

    async def describe_producers(self, request: Request, _client: Client) -> wire.DescribeProducersResponse:
        body = cast(wire.DescribeProducersRequest, request.body)
        asked = [(topic.name, number) for topic in body.topics for number in topic.partition_indexes]
        logs = Logs(self._view, self._open_log)

        async def describe(item: tuple[str, int]) -> wire.PartitionResponse:
            name, number = item
            answer = wire.PartitionResponse(partition_index=number)
            try:
                states = await logs.ask(name, number, self._producers)
            except (Refused, CatenaError) as error:
                answer.error_code, answer.error_message = fault_of(error)
            else:
                answer.active_producers = [_producer(number, state) for number, state in sorted(states.items())]
            return answer

        answers = iter(await map_bounded(PARTITIONS_AT_ONCE, describe, asked))
        return wire.DescribeProducersResponse(
            topics=[
                wire.TopicResponse(name=topic.name, partitions=[next(answers) for _ in topic.partition_indexes])
                for topic in body.topics
            ]
        )

    def _led(self, body: DescribeLogDirsRequest) -> list[tuple[TopicRecord, list[int]]]:
        """What was asked for of the partitions that this node leads. What is not there is left out, as in Kafka."""
        placement, node_id = self._membership.view.writers, self._membership.node_id
        asked: list[tuple[TopicRecord, list[int]]] = []
        if body.topics is None:
            asked = [(topic, list(range(topic.partitions))) for topic in self._view.all()]
        else:
            for each in body.topics:
                topic = self._view.cached(each.topic)
                if topic is not None:
                    numbers = sorted({number for number in each.partitions if 0 <= number < topic.partitions})
                    asked.append((topic, numbers))

        def leads(topic: TopicRecord, number: int) -> bool:
            return placement.leader(PartitionOf(topic.topic_id, number, topic.partitions)) == node_id

        led = [(topic, [number for number in numbers if leads(topic, number)]) for topic, numbers in asked]
        return [(topic, numbers) for topic, numbers in led if numbers]

    async def _size(self, log: VirtualLog) -> int:
        try:
            return await estimated_size(log, await log.tail())
        except UnknownTopic:
            return 0
        except StoreRefused:
            return NOT_KNOWN

    async def _producers(self, log: VirtualLog) -> dict[int, ProducerState]:
        """Those that the last link knows: from its handoff, from their records, and from what is still pending."""
        link = (await log.refresh()).last
        if link.kind != "diskless":
            raise Refused(Code.INVALID_REQUEST, f"{log.tp}: the producers of a {link.kind} log can't be listed")
        states = dict(await load_handoff(self._meta, log.tp, link.epoch))
        # Looked at before the records: what is pending now is in them, or here, or in both.
        control = await self._meta.get(keys.control(log.tp))
        for producer_id, state in (await self._written(log.tp, link.epoch)).items():
            states[producer_id] = state
        if control is not None:
            decoded = decode_control(control.key, control.value)
            if decoded.epoch == link.epoch and decoded.pending is not None:
                for producer_id, state in decoded.pending.producers.items():
                    if producer_id not in states or states[producer_id].end < state.end:
                        states[producer_id] = state
        now_ms = self._clock.now_ms()
        alive = {number: state for number, state in states.items() if unexpired(state, now_ms) is not None}
        return dict(list(alive.items())[:MAX_PRODUCERS])

    async def _written(self, tp: TopicPartition, epoch: int) -> dict[int, ProducerState]:
        states: dict[int, ProducerState] = {}
        prefix = keys.producer_prefix(tp)
        start, end = prefix, keys.after(prefix)
        for _ in range(MAX_PRODUCERS // SCAN_LIMIT):
            page = await self._meta.scan(start, end, SCAN_LIMIT)
            for record in page:
                written = decode_producer(record.key, record.value)
                if written.link_epoch == epoch:
                    states[int(record.key.removeprefix(prefix))] = written.state
            if len(page) < SCAN_LIMIT:
                break
            start = page[-1].key + "\0"
        return states


def _producer(producer_id: int, state: ProducerState) -> wire.ProducerState:
    return wire.ProducerState(
        producer_id=producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.batches[-1].last_sequence,
        last_timestamp=state.updated_ms,
        coordinator_epoch=-1,
    )
