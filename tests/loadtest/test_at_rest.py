"""A producer whose acks are late waits for them, and takes no CPU from those that it waits for."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from typing import Any

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from catena.loadtest.hammers.kafka_produce import settings_of
from catena.loadtest.scenario import Kafka, Topic
from catena.loadtest.stack import Stack
from catena.loadtest.topics import precreate
from tests.loadtest.conftest import SMALL
from tests.loadtest.test_hammers import order

TOPIC = Topic("at-rest", 4)
IN_A_BATCH = 16
"""At least: of up to 5 records librdkafka has several requests of a partition under way, and does not spin."""
RECORDS_PER_S = 4_000
WAKEUPS_PER_S = 4_000
"""No more than one for each record: it is about one a second where nothing spins."""


class Told:
    """By librdkafka, of itself."""

    def __init__(self) -> None:
        self.reports = self.wakeups = self.under_way = 0
        self.errors: list[KafkaError] = []

    def __call__(self, told: str) -> None:
        statistics: dict[str, Any] = json.loads(told)
        brokers = statistics["brokers"].values()
        self.reports += 1
        self.wakeups = sum(broker["wakeups"] for broker in brokers)
        self.under_way = max(broker["waitresp_cnt"] for broker in brokers)

    def delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.errors.append(error)


async def test_a_producer_rests_while_a_node_stands_still(stack: Stack) -> None:
    """An idempotent one of librdkafka spins where a partition's batch is due, the one before it is not answered, and
    the connection has room for more requests: over a million times a second with 4 in flight."""
    await precreate(stack, msgspec.structs.replace(SMALL, topics=(TOPIC,)))
    told, in_flight = Told(), TOPIC.partitions - 1
    settings = settings_of(order(bootstrap=stack.state.nodes[0].kafka, kafka=Kafka(linger_ms=5, in_flight=in_flight)))
    producer = Producer(settings | {"statistics.interval.ms": 100, "stats_cb": told, "on_delivery": told.delivered})
    send(producer)
    assert producer.flush(60) == 0
    assert stack.signal("node-0", signal.SIGSTOP)
    try:
        await asyncio.to_thread(keep_sending, producer, lambda: told.under_way == in_flight)
        before, since, reports = told.wakeups, time.monotonic(), told.reports
        await asyncio.to_thread(keep_sending, producer, lambda: told.reports >= reports + 10)
        per_s = (told.wakeups - before) / (time.monotonic() - since)
    finally:
        assert stack.signal("node-0", signal.SIGCONT)
    assert producer.flush(60) == 0
    assert told.errors == []
    assert per_s < WAKEUPS_PER_S


def send(producer: Producer) -> int:
    for number in range(IN_A_BATCH * TOPIC.partitions):
        producer.produce(TOPIC.name, b"x", partition=number % TOPIC.partitions)
    return IN_A_BATCH * TOPIC.partitions


def keep_sending(producer: Producer, is_enough: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_enough():
        assert time.monotonic() < deadline
        producer.poll(send(producer) / RECORDS_PER_S)
