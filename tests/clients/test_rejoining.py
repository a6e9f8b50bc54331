"""A node that comes back has its share of the consumers soon, and they notice nothing but that."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from catena.cluster.placement import Placement
from tests.clients.clients import CLIENTS, NONE, Rec
from tests.clients.conftest import SESSION_TTL_MS, create_topic, running, settings
from tests.clients.kafka_python import KafkaConsumer
from tests.clients.kafka_python import TopicPartition as PythonPartition
from tests.clients.nodes import Cluster, Node
from tests.clients.waiting import until

PARTITIONS = 8
ROUND = 10
NEVER_MS = 3_600_000
PATIENCE_S = 90.0

Found = list[tuple[int, int, bytes]]
Follow = Callable[[str, str, Found, threading.Event], None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from running(Cluster(2, tmp_path, {"CATENA_CLUSTER__SESSION_TTL_MS": str(SESSION_TTL_MS)}))


def librdkafka(bootstrap: str, topic: str, found: Found, ending: threading.Event) -> None:
    errors: list[object] = []
    # One whose coordinator stays as well: with that it would look for leaders, too.
    group = next(f"g{number}" for number in range(100) if Placement([0, 1]).coordinator(f"g{number}") == 0)
    consumer = Consumer(
        settings(bootstrap, group_id=group, enable_auto_commit=False, topic_metadata_refresh_interval_ms=NEVER_MS)
        | {"error_cb": errors.append}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    while not ending.is_set():
        for message in consumer.consume(100, 0.1):
            assert message.error() is None, message.error()
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes)
            found.append((partition, offset, value))
    consumer.close()
    assert errors == []


def kafka_python(bootstrap: str, topic: str, found: Found, ending: threading.Event) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, metadata_max_age_ms=NEVER_MS, enable_auto_commit=False)
    consumer.assign([PythonPartition(topic, number) for number in range(PARTITIONS)])
    consumer.seek_to_beginning()
    while not ending.is_set():
        for records in consumer.poll(100).values():
            found.extend((record.partition, record.offset, record.value) for record in records)
    consumer.close()


def aiokafka(bootstrap: str, topic: str, found: Found, ending: threading.Event) -> None:
    async def follow() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, metadata_max_age_ms=NEVER_MS, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([AioPartition(topic, number) for number in range(PARTITIONS)])
        await consumer.seek_to_beginning()
        while not ending.is_set():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found.extend((record.partition, record.offset, record.value) for record in records)
        await consumer.stop()

    asyncio.run(follow())


def fetches(node: Node) -> int:
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=30) as answer:
        found = json.load(answer)
    return int(found["kafka"]["apis"].get("Fetch", {}).get("requests", 0))


@pytest.mark.long
@pytest.mark.parametrize("follow", [librdkafka, kafka_python, aiokafka], ids=["librdkafka", "kafka-python", "aiokafka"])
def test_a_node_that_comes_back_has_its_share_of_the_consumers(cluster: Cluster, follow: Follow) -> None:
    stays, goes = cluster.nodes
    topic = create_topic(AdminClient(settings(stays.address)), PARTITIONS)
    goes.end()
    cluster.wait_until_listed([stays])
    found: Found = []
    ending, trouble = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            follow(stays.address, topic, found, ending)
        except BaseException as error:
            trouble.append(error)
            raise

    def write(number: int) -> None:
        records = [Rec(partition, None, b"%d" % number) for partition in range(PARTITIONS) for _ in range(ROUND)]
        CLIENTS[0].write(stays.address, topic, records, NONE)

    def has(count: int) -> bool:
        return bool(trouble) or len(found) >= count

    thread = threading.Thread(target=run)
    thread.start()
    try:
        write(0)
        until(lambda: has(PARTITIONS * ROUND), "what was written before", PATIENCE_S)
        goes.launch()
        goes.wait_until_ready()
        cluster.wait_until_listed(cluster.nodes)
        until(lambda: fetches(goes) > 0 or bool(trouble), "fetches at the node that came back", PATIENCE_S)
        write(1)
        until(lambda: has(2 * PARTITIONS * ROUND), "what was written after", PATIENCE_S)
    finally:
        ending.set()
        thread.join()
    assert trouble == []
    expected = [(partition, offset) for partition in range(PARTITIONS) for offset in range(2 * ROUND)]
    assert sorted((partition, offset) for partition, offset, _ in found) == expected
