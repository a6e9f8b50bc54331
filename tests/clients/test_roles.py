"""Nodes that only write and nodes that only read: the clients that people use find their way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from catena.formats.records import build_batch
from catena.wire.codes import Code
from catena.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.clients.clients import CLIENTS, NONE, Client, Rec
from tests.clients.conftest import create_topic, fresh, settings
from tests.clients.nodes import Cluster
from tests.clients.raw import Raw, fetch, metadata, produce
from tests.clients.split import counters, records_of, split_cluster
from tests.clients.waiting import until

WRITER, READER = 0, 1


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with split_cluster(tmp_path_factory.mktemp("roles"), ("write", "read")) as cluster:
        yield cluster


@pytest.fixture
def topic(split: Cluster) -> str:
    return create_topic(AdminClient(settings(split.bootstrap)), 4)


@pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
def test_every_client_writes_and_reads(split: Cluster, topic: str, client: Client) -> None:
    records = [Rec(number % 4, b"key", b"%d" % number) for number in range(40)]
    client.write(split.bootstrap, topic, records, NONE)
    read = client.read(split.bootstrap, topic, range(4), len(records))
    assert sorted((rec.partition, rec.value) for rec in read) == sorted((rec.partition, rec.value) for rec in records)


def test_librdkafka_is_served_by_the_node_that_reads(split: Cluster, topic: str) -> None:
    """From its only connection to the writer on: it is sent on, and believes it."""
    CLIENTS[0].write(split.bootstrap, topic, [Rec(0, None, b"%d" % number) for number in range(10)], NONE)
    before = {node: counters(split.nodes[node]).objects for node in (WRITER, READER)}
    consumer = Consumer(settings(split.nodes[WRITER].address, group_id=fresh("g"), enable_auto_commit=False))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | str | None] = []

    def poll() -> bool:
        found.extend(message.value() for message in consumer.consume(10, 0.1))
        return len(found) >= 10

    until(poll, "10 records")
    consumer.close()
    assert found == [b"%d" % number for number in range(10)]
    assert counters(split.nodes[READER]).objects > before[READER]
    assert counters(split.nodes[WRITER]).objects == before[WRITER]


def test_what_each_node_says(split: Cluster, topic: str) -> None:
    writer, reader = split.nodes
    for node in split.nodes:
        for part in metadata(node.address, topic).topics[0].partitions:
            assert (part.leader_id, part.replica_nodes, part.isr_nodes) == (WRITER, [WRITER, READER], [WRITER, READER])
    with Raw(writer.address) as at_writer, Raw(reader.address) as at_reader:
        assert produce(at_reader, topic, build_batch([(None, b"x", (), 0)])).error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert produce(at_writer, topic, build_batch([(None, b"x", (), 0)])).error_code == 0
        sent_on = fetch(at_writer, topic, 0, max_wait_ms=10_000)
        assert (sent_on.preferred_read_replica, records_of(sent_on)) == (READER, [])
        assert records_of(fetch(at_reader, topic, 0)) == [(0, b"x")]
        asked = FetchTopic(topic=topic, partitions=[FetchPartition(partition_max_bytes=1 << 20)])
        older = at_writer.ask(FetchRequest(topics=[asked], max_bytes=1 << 20), FetchResponse, 10)
        assert records_of(older.responses[0].partitions[0]) == [(0, b"x")]


def test_groups_are_coordinated_by_any_of_them(split: Cluster, topic: str) -> None:
    CLIENTS[0].write(split.bootstrap, topic, [Rec(number % 4, None, b"x") for number in range(8)], NONE)
    for _ in range(4):
        consumer = Consumer(settings(split.bootstrap, group_id=fresh("group"), auto_offset_reset="earliest"))
        consumer.subscribe([topic])
        found = 0

        def poll(consumer: Consumer = consumer) -> bool:
            nonlocal found
            found += len(consumer.consume(10, 0.1))
            return found >= 8

        until(poll, "8 records")
        consumer.commit(asynchronous=False)
        consumer.close()
