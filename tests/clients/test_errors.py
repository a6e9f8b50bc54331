"""Whatever a client does wrong it gets Kafka's error for it, or is hung up on, and the node lives on."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from catena.formats.records import build_batch
from catena.wire.apis import APIS
from catena.wire.codes import Code
from catena.wire.messages.api_versions import ApiVersionsResponse
from catena.wire.messages.fetch import FetchRequest, FetchResponse
from catena.wire.messages.list_offsets import ListOffsetsRequest
from catena.wire.messages.metadata import MetadataRequest
from catena.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from catena.wire.messages.produce import ProduceRequest
from catena.wire.reader import read_message
from tests.clients.clients import CLIENTS
from tests.clients.conftest import Setting, create_topic, fresh, settings
from tests.clients.nodes import Cluster
from tests.clients.raw import BY_REQUEST, Closed, Raw, fetch, list_offset, metadata, produce
from tests.clients.waiting import PATIENCE_S

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
MILLION = 1_000_000
MEMORY_MAX_MB = 100
"""What a node may grow by when it is lied to about sizes."""


def batch(value: bytes = b"value") -> bytes:
    return build_batch([(b"key", value, (), 1_700_000_000_000)])


def memory_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[Raw]:
    with Raw(cluster.nodes[0].address) as connection:
        yield connection


@pytest.fixture(autouse=True)
def lives_on(cluster: Cluster) -> Iterator[None]:
    """After each test: the same processes, no larger, and they serve."""
    before = [(node.pid, memory_mb(node.pid), len(node.log)) for node in cluster.nodes]
    yield
    for node, (pid, memory, logged) in zip(cluster.nodes, before, strict=True):
        assert node.is_running
        assert node.pid == pid
        assert "Traceback" not in node.log[logged:]
        assert memory_mb(pid) < memory + MEMORY_MAX_MB
    topic = create_topic(AdminClient(settings(cluster.bootstrap)))
    for offset, node in enumerate(cluster.nodes):
        with Raw(node.address) as raw:
            assert produce(raw, topic, batch()).base_offset == offset
            assert fetch(raw, topic, offset).high_watermark == offset + 1


def delivery(cluster: Cluster, topic: str, value: bytes, **config: Setting) -> KafkaError | None:
    """What became of a record that librdkafka wrote."""
    producer = Producer(settings(cluster.bootstrap, **config))
    faults: list[KafkaError | None] = []

    def delivered(fault: KafkaError | None, _message: Message) -> None:
        faults.append(fault)

    producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    return faults[0]


class TestRecords:
    def test_too_large_for_the_topic(self, cluster: Cluster, admin: AdminClient) -> None:
        topic = create_topic(admin, max_message_bytes="10000")
        fault = delivery(cluster, topic, b"x" * 10_001, message_max_bytes=10_000_000)
        assert fault is not None
        assert fault.code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert delivery(cluster, topic, b"x" * 9_000) is None

    def test_too_large_by_default(self, cluster: Cluster, admin: AdminClient) -> None:
        fault = delivery(cluster, create_topic(admin), b"x" * 1_100_000, message_max_bytes=10_000_000)
        assert fault is not None
        assert fault.code() == KafkaError.MSG_SIZE_TOO_LARGE

    def test_a_larger_limit_is_obeyed(self, cluster: Cluster, admin: AdminClient) -> None:
        topic = create_topic(admin, max_message_bytes="6000000")
        assert delivery(cluster, topic, b"x" * 5_000_000, message_max_bytes=10_000_000) is None
        [read] = CLIENTS[0].read(cluster.bootstrap, topic, [0], 1)
        assert read.value == b"x" * 5_000_000, "the first batch is sent, whatever its size"

    @pytest.mark.parametrize("at", [17, 25, 60, 65], ids=["crc", "offset-delta", "count", "record"])
    def test_a_batch_that_was_damaged_on_its_way(self, raw: Raw, topic: str, at: int) -> None:
        damaged = bytearray(batch())
        damaged[at] ^= 1
        assert produce(raw, topic, bytes(damaged)).error_code in (Code.CORRUPT_MESSAGE, Code.INVALID_RECORD)
        assert list_offset(raw, topic).offset == 0, "nothing of it is in the log"

    @pytest.mark.parametrize(
        "records",
        [b"", b"\0", batch()[:-1], batch()[:30], b"\xff" * 200],
        ids=["empty", "a-byte", "cut", "half-a-header", "ones"],
    )
    def test_what_is_no_batch(self, raw: Raw, topic: str, records: bytes) -> None:
        assert produce(raw, topic, records).error_code == Code.CORRUPT_MESSAGE

    def test_an_old_format(self, raw: Raw, topic: str) -> None:
        old = bytearray(batch())
        old[16] = 1
        assert produce(raw, topic, bytes(old)).error_code in (
            Code.CORRUPT_MESSAGE,
            Code.INVALID_RECORD,
            Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        )

    def test_acks_that_nobody_knows(self, raw: Raw, topic: str) -> None:
        assert produce(raw, topic, batch(), acks=7).error_code == Code.INVALID_REQUIRED_ACKS

    def test_without_acks_a_refusal_is_a_hang_up(self, cluster: Cluster, topic: str) -> None:
        """As in Kafka: there is no other way to say it."""
        with Raw(cluster.nodes[0].address) as raw, pytest.raises(Closed):
            produce(raw, topic, batch()[:-1], acks=0)


class TestUnknown:
    def test_topic_of_a_producer(self, cluster: Cluster) -> None:
        """allow.auto.create.topics is false for consumers and true for producers, so producers make what they name."""
        assert delivery(cluster, fresh("made-by-writing"), b"x") is None

    def test_topic_of_a_consumer(self, cluster: Cluster, admin: AdminClient) -> None:
        topic = fresh("never-made")
        with closing(Consumer(settings(cluster.bootstrap, group_id=fresh("group")))) as consumer:
            consumer.subscribe([topic])
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert topic not in admin.list_topics(timeout=PATIENCE_S).topics

    def test_topic_and_partition_of_a_request(self, raw: Raw, topic: str) -> None:
        for name, partition in (("never-made", 0), (topic, 4), (topic, -1), ("no/name", 0)):
            expected = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION)
            assert produce(raw, name, batch(), partition).error_code in expected
            assert fetch(raw, name, 0, partition).error_code in expected

    def test_topic_of_a_metadata_request(self, cluster: Cluster) -> None:
        said = metadata(cluster.nodes[0].address, "never-made", "no/name").topics
        assert [one.error_code for one in said] == [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION]

    @pytest.mark.parametrize("offset", [-1, 2, 1 << 60])
    def test_offset(self, raw: Raw, topic: str, offset: int) -> None:
        assert produce(raw, topic, batch()).base_offset == 0
        assert fetch(raw, topic, offset).error_code == Code.OFFSET_OUT_OF_RANGE


class TestEpochs:
    def test_of_a_leader(self, cluster: Cluster, raw: Raw, topic: str) -> None:
        assert produce(raw, topic, batch()).base_offset == 0
        epoch = metadata(cluster.nodes[0].address, topic).topics[0].partitions[0].leader_epoch
        for given, code in (
            (epoch, Code.NONE),
            (epoch - 1, Code.FENCED_LEADER_EPOCH),
            (epoch + 1, Code.UNKNOWN_LEADER_EPOCH),
        ):
            assert fetch(raw, topic, 0, leader_epoch=given).error_code == code
            assert list_offset(raw, topic, leader_epoch=given).error_code == code
            part = OffsetForLeaderPartition(partition=0, current_leader_epoch=given, leader_epoch=epoch)
            asked = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])])
            answer = raw.ask(asked, OffsetForLeaderEpochResponse).topics[0].partitions[0]
            assert answer.error_code == code

    def test_of_a_producer(self, raw: Raw, topic: str) -> None:
        def numbered(epoch: int, sequence: int) -> bytes:
            records = [(None, b"x", (), 1_700_000_000_000)]
            return build_batch(records, producer_id=10**12, producer_epoch=epoch, base_sequence=sequence)

        assert produce(raw, topic, numbered(3, 0)).base_offset == 0
        assert produce(raw, topic, numbered(3, 0)).base_offset == 0, "the same again is acked again, and not written"
        assert produce(raw, topic, numbered(3, 2)).error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(raw, topic, numbered(2, 1)).error_code == Code.INVALID_PRODUCER_EPOCH
        assert produce(raw, topic, numbered(3, 1)).base_offset == 1
        assert list_offset(raw, topic).offset == 2


class TestRequests:
    @pytest.mark.parametrize("version", [-1, 5, 99, 32767])
    def test_versions_that_are_not_there_are_told_which_are(self, raw: Raw, version: int) -> None:
        raw.send_body(API_VERSIONS, version, b"\xff" * 40)
        frame = raw.receive_frame()
        said, _ = read_message(ApiVersionsResponse, 0, False, memoryview(frame), 4)
        assert said.error_code == Code.UNSUPPORTED_VERSION
        assert {one.api_key for one in said.api_keys} == APIS.keys()
        raw.send_body(API_VERSIONS, 0, b"")
        assert raw.receive_frame(), "the connection is of use still"

    @pytest.mark.parametrize(
        ("key", "version"),
        [(PRODUCE, 2), (PRODUCE, 99), (FETCH, 3), (METADATA, -1), (METADATA, 99), (4, 0), (99, 0), (-1, 0), (32767, 1)],
    )
    def test_old_and_unknown_ones_are_refused_and_the_connection_goes_on(
        self, raw: Raw, key: int, version: int
    ) -> None:
        raw.send_body(key, version, b"\0" * 20)
        assert raw.receive_frame() == struct.pack(">ih", raw.correlation_id, Code.UNSUPPORTED_VERSION)
        raw.send_body(API_VERSIONS, 0, b"")
        assert raw.receive_frame(), "the connection is of use still"

    @pytest.mark.parametrize(
        "garbage",
        [
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
            struct.pack(">i", -1),
            struct.pack(">i", 0),
            struct.pack(">i", 2**31 - 1) + b"x" * 1000,
            struct.pack(">i", 5) + b"short",
            b"\xff" * 10_000,
        ],
        ids=["http", "tls", "negative-size", "no-size", "huge-size", "short", "ones"],
    )
    def test_garbage_ends_the_connection(self, raw: Raw, garbage: bytes) -> None:
        raw.send_bytes(garbage)
        assert raw.is_closed()

    @pytest.mark.parametrize("request_class", [MetadataRequest, ProduceRequest, FetchRequest, ListOffsetsRequest])
    @pytest.mark.parametrize("entries", [MILLION, 2**31 - 1])
    def test_array_of_a_million_that_is_not_there(self, cluster: Cluster, request_class: type, entries: int) -> None:
        """In the version before compact lengths, and in the newest one."""
        api = BY_REQUEST[request_class]
        prefix = {
            PRODUCE: b"\xff\xff\xff\xff\0\0\0\1",
            FETCH: struct.pack(">iiiibii", -1, 0, 0, MILLION, 0, 0, -1),
            METADATA: b"",
            2: struct.pack(">ib", -1, 0),
        }[api.key]
        with Raw(cluster.nodes[0].address) as raw:
            raw.send_body(api.key, api.flexible - 1, prefix + struct.pack(">i", entries) + b"\0" * 30)
            assert raw.is_closed()
        compact = bytearray()
        left = entries + 1
        while left > 0x7F:
            compact.append(left & 0x7F | 0x80)
            left >>= 7
        compact.append(left)
        newest = {
            PRODUCE: b"\0\xff\xff\0\0\0\1",
            FETCH: struct.pack(">iiibii", 0, 0, MILLION, 0, 0, -1),
            METADATA: b"",
            2: struct.pack(">ib", -1, 0),
        }[api.key]
        with Raw(cluster.nodes[0].address) as raw:
            raw.send_body(api.key, api.last, b"\0" + newest + bytes(compact) + b"\0" * 30)
            assert raw.is_closed()

    def test_a_million_entries_that_are_there(self, cluster: Cluster) -> None:
        """Names that nobody has, asked for at once: an answer or a hang up, and not for long."""
        began = time.monotonic()
        body = struct.pack(">i", MILLION) + b"\0\1x" * MILLION + b"\0"
        with Raw(cluster.nodes[0].address, timeout_s=60) as raw:
            raw.send_body(METADATA, 4, body)
            try:
                raw.receive_frame()
            except Closed:
                pass
        assert time.monotonic() - began < 30

    def test_a_fetch_session_that_nobody_has_begun(self, raw: Raw) -> None:
        asked = FetchRequest(session_id=77, session_epoch=5, max_bytes=1)
        assert raw.ask(asked, FetchResponse).error_code == Code.FETCH_SESSION_ID_NOT_FOUND

    def test_half_a_request_and_then_nothing_harms_nobody(self, cluster: Cluster, topic: str) -> None:
        with Raw(cluster.nodes[0].address) as half:
            half.send_bytes(struct.pack(">ihh", 1 << 20, PRODUCE, 9))
            with Raw(cluster.nodes[0].address) as other:
                assert produce(other, topic, batch()).base_offset == 0


def test_a_consumer_beyond_the_end_is_told_so(cluster: Cluster, topic: str) -> None:
    assert delivery(cluster, topic, b"x") is None
    config = settings(cluster.bootstrap, group_id=fresh("group"), auto_offset_reset="error")
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
