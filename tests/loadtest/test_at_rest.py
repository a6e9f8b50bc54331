"""A producer whose acks are late waits for them, and takes no CPU from those that it waits for."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from typing import Any

import msgspec
from confluent_kafka import Producer

from catena.loadtest.hammers.kafka_produce import settings_of
from catena.loadtest.scenario import Kafka, Topic
from catena.loadtest.stack import Stack
from catena.loadtest.topics import precreate
from tests.loadtest.conftest import SMALL
from tests.loadtest.test_hammers import order

TOPIC = Topic("at-rest", 4)
IN_A_BATCH = 16
"""At least: of up to 5 records librdkafka has several requests of a partition under way, and does not spin."""
PER_S = 4_000


class Wakeups:
    """How often librdkafka's threads woke up until it last said so."""

    def __init__(self) -> None:
        self.reports = self.total = 0

    def __call__(self, told: str) -> None:
        statistics: dict[str, Any] = json.loads(told)
        self.reports += 1
        self.total = sum(broker["wakeups"] for broker in statistics["brokers"].values())


async def test_a_producer_rests_while_a_node_stands_still(stack: Stack) -> None:
    """An idempotent one of librdkafka spins where a partition's batch is due, the one before it is not answered, and
    the connection has room for more requests: over a million times a second with 4 in flight."""
    await precreate(stack, msgspec.structs.replace(SMALL, topics=(TOPIC,)))
    wakeups = Wakeups()
    bootstrap = stack.state.nodes[0].kafka
    producer = Producer(
        settings_of(order(bootstrap=bootstrap, kafka=Kafka(linger_ms=5, in_flight=TOPIC.partitions - 1)))
        | {"statistics.interval.ms": 100, "stats_cb": wakeups}
    )
    send(producer)
    assert producer.flush(60) == 0
    stack.signal("node-0", signal.SIGSTOP)
    try:
        await asyncio.to_thread(keep_sending, producer, lambda: len(producer) > 10 * IN_A_BATCH * TOPIC.partitions)
        before, since, reports = wakeups.total, time.monotonic(), wakeups.reports
        await asyncio.to_thread(keep_sending, producer, lambda: wakeups.reports >= reports + 10)
        per_s = (wakeups.total - before) / (time.monotonic() - since)
    finally:
        stack.signal("node-0", signal.SIGCONT)
    assert producer.flush(60) == 0
    assert per_s < PER_S


def send(producer: Producer) -> int:
    for number in range(IN_A_BATCH * TOPIC.partitions):
        producer.produce(TOPIC.name, b"x", partition=number % TOPIC.partitions)
    return IN_A_BATCH * TOPIC.partitions


def keep_sending(producer: Producer, is_enough: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_enough():
        assert time.monotonic() < deadline
        producer.poll(send(producer) / PER_S)
