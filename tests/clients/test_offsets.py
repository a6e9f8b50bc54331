"""Where in a log: the offset of a time, the ends, what a group has committed, and how far it is behind; each client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.clients import CLIENTS, Rec, kcat
from tests.clients.conftest import create_topic, fresh, settings
from tests.clients.kafka_python import KafkaConsumer, OffsetAndMetadata
from tests.clients.kafka_python import TopicPartition as PythonPartition
from tests.clients.nodes import Cluster

START_MS = 1_700_000_000_000
COUNT = 100
TIMEOUT_S = 30
TIMES = {START_MS - 1: 0, START_MS: 0, START_MS + 41_500: 42, START_MS + 99_000: 99, START_MS + 99_001: None}
"""Which offset is the first at or after a time, if one is."""
COMMITTED = 60


@pytest.fixture
def topic(cluster: Cluster, admin: AdminClient) -> str:
    """One record a second, some of them in batches of their own."""
    name = create_topic(admin)
    records = [Rec(0, None, b"%d" % n, timestamp=START_MS + 1000 * n) for n in range(COUNT)]
    for start in (0, 40, 45):
        end = {0: 40, 40: 45, 45: COUNT}[start]
        CLIENTS[0].write(cluster.bootstrap, name, records[start:end], "zstd")
    return name


@pytest.fixture
def consumer(cluster: Cluster) -> Iterator[Consumer]:
    with closing(Consumer(settings(cluster.bootstrap, group_id=fresh("group")))) as opened:
        yield opened


def test_librdkafka(cluster: Cluster, topic: str, consumer: Consumer) -> None:
    for time, offset in TIMES.items():
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, time)], TIMEOUT_S)
        assert found.offset == (-1 if offset is None else offset), "-1 is the end"
    consumer.assign([TopicPartition(topic, 0, 42)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"42", "from within a batch"
    consumer.commit(offsets=[TopicPartition(topic, 0, COMMITTED, metadata="note")], asynchronous=False)
    [committed] = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    assert (committed.offset, committed.metadata) == (COMMITTED, "note")
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    assert (low, high - committed.offset) == (0, COUNT - COMMITTED)


def test_kafka_python(cluster: Cluster, topic: str) -> None:
    place = PythonPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","), group_id=fresh("group"))) as consumer:
        for time, offset in TIMES.items():
            found = consumer.offsets_for_times({place: time})[place]
            assert (None if found is None else found.offset) == offset
        consumer.assign([place])
        consumer.seek(place, 42)
        assert next(consumer).value == b"42"
        consumer.commit({place: OffsetAndMetadata(COMMITTED, "note", -1)})
        assert consumer.committed(place) == COMMITTED
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place])[place] - consumer.committed(place) == COUNT - COMMITTED


async def test_aiokafka(cluster: Cluster, topic: str) -> None:
    place = AioPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=fresh("group"), enable_auto_commit=False)
    async with consumer:
        consumer.assign([place])
        for time, offset in TIMES.items():
            found = (await consumer.offsets_for_times({place: time}))[place]
            assert (None if found is None else found.offset) == offset
        consumer.seek(place, 42)
        assert (await consumer.getone()).value == b"42"
        await consumer.commit({place: COMMITTED})
        assert await consumer.committed(place) == COMMITTED
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert (await consumer.end_offsets([place]))[place] - await consumer.committed(place) == COUNT - COMMITTED


def test_kcat(cluster: Cluster, topic: str) -> None:
    for time, offset in TIMES.items():
        out = kcat(cluster.bootstrap, "-Q", "-t", f"{topic}:0:{time}")
        assert f"[0] offset {COUNT if offset is None else offset}" in out or (offset is None and "offset -1" in out)
    read = kcat(cluster.bootstrap, "-C", "-t", topic, "-p", "0", "-o", f"s@{START_MS + 98_000}", "-e", "-q")
    assert read.split() == ["98", "99"]
    last = kcat(cluster.bootstrap, "-C", "-t", topic, "-p", "0", "-o", "-3", "-e", "-q")
    assert last.split() == ["97", "98", "99"]
    listed = json.loads(kcat(cluster.bootstrap, "-L", "-J", "-t", topic))
    assert [broker["id"] for broker in listed["brokers"]] == [node.node_id for node in cluster.nodes]
    assert [one["topic"] for one in listed["topics"]] == [topic]


def test_a_group_of_kcat_commits_what_it_has_read(cluster: Cluster, topic: str) -> None:
    group = fresh("group")
    options = ("-X", "auto.offset.reset=earliest", "-q", "-c")
    first = kcat(cluster.bootstrap, "-G", group, *options, "30", topic)
    second = kcat(cluster.bootstrap, "-G", group, *options, "70", topic)
    assert [*first.split(), *second.split()] == [str(number) for number in range(COUNT)]
