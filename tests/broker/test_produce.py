"""What a batch must be to get into a log, and what its producer is told."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest

from catena.broker.base import Client, HangUp, Later
from catena.broker.produce import Produce
from catena.errors import OutcomeUnknown, StoreUnavailable
from catena.formats.compression import Compression
from catena.formats.record_batch import CRC_START, check_crc, parse_header
from catena.formats.records import build_batch, iter_records
from catena.runtime import Tasks
from catena.testing.faults import Fail
from catena.wire.apis import APIS
from catena.wire.codes import Code
from catena.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from catena.wire.requests import Request, response_frame
from tests.broker.world import BrokerNode, World

PRODUCE = APIS[0]


def batch(*values: bytes, compression: Compression = Compression.NONE, time: int = 1000) -> bytes:
    return build_batch([(None, value, (), time) for value in values], compression=compression)


def with_attributes(data: bytes, attributes: int) -> bytes:
    """A batch with other attributes and a CRC that is right."""
    import crc32c

    out = bytearray(data)
    struct.pack_into(">h", out, CRC_START, attributes)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[CRC_START:])))
    return bytes(out)


class Producing:
    def __init__(self, node: BrokerNode, *, writes: bool = True) -> None:
        self.node = node
        self.tasks = Tasks("produce")
        self.produce = Produce(node.view, node.node.open_log, node.node.clock, self.tasks, writes=writes)

    async def ask(self, request: ProduceRequest, version: int = 12) -> ProduceResponse | HangUp | None:
        later = await self.produce.produce(Request(PRODUCE, version, 1, None, request), Client("", "main"))
        assert isinstance(later, Later)
        answer = await later.answer
        if isinstance(answer, ProduceResponse):
            assert response_frame(PRODUCE, version, 1, answer)
            return answer
        assert answer is None or isinstance(answer, HangUp)
        return answer

    async def one(
        self, data: bytes | None, topic: str = "t", partition: int = 0, acks: int = -1, version: int = 12
    ) -> PartitionProduceResponse:
        part = PartitionProduceData(index=partition, records=None if data is None else [data])
        request = ProduceRequest(acks=acks, topic_data=[TopicProduceData(name=topic, partition_data=[part])])
        answer = await self.ask(request, version)
        assert isinstance(answer, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    async def values(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        log = await self.node.node.log(topic, partition)
        batches = await log.read(0, 1 << 30)
        return [record.value for each in batches for record in iter_records(each.data, each.offset)]


@pytest.fixture
async def producing(world: World) -> AsyncIterator[Producing]:
    producing = Producing(await world.node())
    await producing.node.node.topics.create("t", 2)
    yield producing
    await producing.tasks.close()


class TestTaken:
    async def test_a_batch_is_stored_as_it_came(self, producing: Producing) -> None:
        data = batch(b"a", b"b", compression=Compression.ZSTD)
        first = await producing.one(data)
        second = await producing.one(batch(b"c"))
        assert (first.error_code, first.base_offset, first.log_start_offset) == (0, 0, 0)
        assert (second.error_code, second.base_offset, second.log_append_time_ms) == (0, 2, -1)
        log = await producing.node.node.log("t", 0)
        assert bytes((await log.read(0, 1))[0].data[8:]) == data[8:]

    async def test_every_partition_has_a_result_of_its_own(self, producing: Producing) -> None:
        parts = [
            PartitionProduceData(index=0, records=[batch(b"a")]),
            PartitionProduceData(index=7, records=[batch(b"b")]),
            PartitionProduceData(index=1, records=[batch(b"c")]),
        ]
        topics = [
            TopicProduceData(name="t", partition_data=parts),
            TopicProduceData(name="none", partition_data=[PartitionProduceData(index=0, records=[batch(b"d")])]),
        ]
        answer = await producing.ask(ProduceRequest(acks=1, topic_data=topics))
        assert isinstance(answer, ProduceResponse)
        codes = [part.error_code for topic in answer.responses for part in topic.partition_responses]
        assert codes == [0, Code.UNKNOWN_TOPIC_OR_PARTITION, 0, Code.UNKNOWN_TOPIC_OR_PARTITION]
        assert await producing.values(partition=1) == [b"c"]

    async def test_requests_that_follow_each_other_keep_their_order(self, producing: Producing) -> None:
        laters = []
        for number in range(50):
            part = PartitionProduceData(index=0, records=[batch(b"%d" % number)])
            body = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[part])])
            laters.append(await producing.produce.produce(Request(PRODUCE, 9, 1, None, body), Client("", "main")))
        for later in laters:
            await later.answer
        assert await producing.values() == [b"%d" % number for number in range(50)]

    async def test_a_request_of_one_partition_does_not_overtake_one_of_many(self, producing: Producing) -> None:
        laters = []
        for number in range(30):
            parts = [
                PartitionProduceData(index=index, records=[batch(b"%d" % number)])
                for index in ([1, 0] if number % 3 else [0])
            ]
            body = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=parts)])
            laters.append(await producing.produce.produce(Request(PRODUCE, 9, 1, None, body), Client("", "main")))
        for later in laters:
            await later.answer
        assert await producing.values() == [b"%d" % number for number in range(30)]

    @pytest.mark.parametrize("padding", [0, 1_000_000])
    async def test_a_batch_keeps_no_large_request_in_memory(self, producing: Producing, padding: int) -> None:
        data = batch(b"a")
        request = memoryview(data + bytes(padding))
        part = PartitionProduceData(index=0, records=[request[: len(data)]])
        await producing.ask(ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[part])]))
        (stored,) = await (await producing.node.node.log("t", 0)).read(0, 1)
        assert (stored.data.obj is request.obj) == (padding == 0)

    async def test_by_topic_id(self, producing: Producing) -> None:
        record = await producing.node.node.topics.get("t")
        part = PartitionProduceData(index=0, records=[batch(b"a")])
        known = TopicProduceData(topic_id=record.topic_id, partition_data=[part])
        unknown = TopicProduceData(topic_id="f" * 32, partition_data=[part])
        answer = await producing.ask(ProduceRequest(acks=-1, topic_data=[known, unknown]), version=13)
        assert isinstance(answer, ProduceResponse)
        assert [topic.partition_responses[0].error_code for topic in answer.responses] == [0, Code.UNKNOWN_TOPIC_ID]

    async def test_without_acks_nobody_is_told(self, producing: Producing) -> None:
        part = PartitionProduceData(index=0, records=[batch(b"a")])
        body = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t", partition_data=[part])])
        assert await producing.ask(body) is None
        assert await producing.values() == [b"a"]

    async def test_without_acks_a_fault_ends_the_connection(self, producing: Producing) -> None:
        part = PartitionProduceData(index=9, records=[batch(b"a")])
        body = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t", partition_data=[part])])
        assert isinstance(await producing.ask(body), HangUp)

    async def test_the_time_of_the_append_is_stamped_where_the_topic_says_so(self, producing: Producing) -> None:
        await producing.node.node.topics.create("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
        answer = await producing.one(batch(b"a", time=5), topic="stamped")
        assert answer.log_append_time_ms > 5
        (stored,) = await (await producing.node.node.log("stamped", 0)).read(0, 1)
        check_crc(stored.data, parse_header(stored.data))
        assert [r.timestamp for r in iter_records(stored.data, 0)] == [answer.log_append_time_ms]

    async def test_batches_are_compressed_as_the_topic_says(self, producing: Producing) -> None:
        await producing.node.node.topics.create("zipped", 1, configs={"compression.type": "zstd"})
        await producing.one(batch(b"a" * 1000, compression=Compression.GZIP), topic="zipped")
        (stored,) = await (await producing.node.node.log("zipped", 0)).read(0, 1)
        assert parse_header(stored.data).compression is Compression.ZSTD
        assert await producing.values("zipped") == [b"a" * 1000]


class TestRefused:
    @pytest.mark.parametrize(
        ("data", "code"),
        [
            pytest.param(None, Code.CORRUPT_MESSAGE, id="null"),
            pytest.param(b"", Code.CORRUPT_MESSAGE, id="empty"),
            pytest.param(batch(b"a")[:-1], Code.CORRUPT_MESSAGE, id="cut off"),
            pytest.param(batch(b"a")[:-1] + b"!", Code.CORRUPT_MESSAGE, id="a flipped byte"),
            pytest.param(batch(b"a") + batch(b"b"), Code.INVALID_RECORD, id="two batches"),
            pytest.param(batch(b"a" * 1_100_000), Code.MESSAGE_TOO_LARGE, id="too large"),
            pytest.param(with_attributes(batch(b"a"), 0x20), Code.INVALID_RECORD, id="control"),
            pytest.param(with_attributes(batch(b"a"), 0x10), Code.INVALID_TXN_STATE, id="transactional"),
        ],
    )
    async def test_nothing_of_it_is_in_the_log(self, producing: Producing, data: bytes | None, code: Code) -> None:
        answer = await producing.one(data)
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert answer.error_message
        assert (await producing.one(batch(b"next"))).base_offset == 0

    async def test_acks_that_nobody_knows(self, producing: Producing) -> None:
        assert (await producing.one(batch(b"a"), acks=2)).error_code == Code.INVALID_REQUIRED_ACKS

    async def test_zstd_of_a_client_that_can_not_have_it(self, producing: Producing) -> None:
        data = batch(b"a", compression=Compression.ZSTD)
        assert (await producing.one(data, version=6)).error_code == Code.UNSUPPORTED_COMPRESSION_TYPE
        assert (await producing.one(data, version=7)).error_code == 0

    async def test_a_time_outside_of_the_topics_bounds(self, producing: Producing) -> None:
        await producing.node.node.topics.create("strict", 1, configs={"message.timestamp.before.max.ms": "1000"})
        assert (await producing.one(batch(b"a", time=5), topic="strict")).error_code == Code.INVALID_TIMESTAMP

    async def test_a_topic_that_was_deleted_and_made_again(self, producing: Producing, world: World) -> None:
        other = await world.node()
        await producing.one(batch(b"old"))
        await other.node.topics.delete("t")
        await other.node.topics.create("t", 1)
        answer = await producing.one(batch(b"new"))
        if answer.error_code:  # the view was old, and the client asks again
            assert answer.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
            answer = await producing.one(batch(b"new"))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert await producing.values() == [b"new"]

    @pytest.mark.parametrize("acks", [-1, 1])
    async def test_at_a_node_that_does_not_write(self, producing: Producing, acks: int) -> None:
        reader = Producing(producing.node, writes=False)
        answer = await reader.one(batch(b"a"), acks=acks)
        assert (answer.error_code, answer.base_offset) == (Code.NOT_LEADER_OR_FOLLOWER, -1)
        assert "role `write`" in (answer.error_message or "")
        request = ProduceRequest(acks=0, topic_data=[_one_part(batch(b"a"))])
        assert isinstance(await reader.ask(request), HangUp)
        assert await producing.values() == []
        await reader.tasks.close()


def _one_part(data: bytes) -> TopicProduceData:
    return TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=[data])])


class TestTrouble:
    async def test_what_was_not_applied_may_be_sent_again(self, producing: Producing) -> None:
        producing.node.faults.at("get chain", Fail(StoreUnavailable("down")))
        answer = await producing.one(batch(b"a"))
        assert answer.error_code == Code.NOT_ENOUGH_REPLICAS
        assert (await producing.one(batch(b"a"))).base_offset == 0

    async def test_an_unknown_outcome_that_is_settled_is_none(self, producing: Producing) -> None:
        producing.node.faults.at("transact", Fail(OutcomeUnknown("lost"), applied=True))
        answer = await producing.one(batch(b"a"))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert await producing.values() == [b"a"]
