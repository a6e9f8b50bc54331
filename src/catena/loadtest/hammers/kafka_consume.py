"""Read partitions at their tail with librdkafka, and take how long each record took from when it was due."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from catena.loadtest.hammers.base import Orders, Tally
from catena.loadtest.records import due_s
from catena.runtime import Clock

POLL_S = 0.1
AT_ONCE = 500
PATIENCE: dict[str, Any] = {"reconnect.backoff.max.ms": 1_000, "log_level": 3}
"""Of all Kafka clients here. librdkafka asks who leads now when it could not connect to who led before, which by
default it tries less and less often, down to every 10 seconds. Kafka's own clients try every second."""


def consume(orders: Orders, clock: Clock) -> None:
    order = orders.order
    consumer = Consumer(consumer_settings(order.bootstrap, order.name))
    consumer.assign(
        [
            TopicPartition(topic, partition, start)
            for (topic, partition), start in zip(order.places, order.starts, strict=True)
        ]
    )
    consumer.poll(0)
    tally = Tally(order, orders.wait_for_start())
    while not orders.stopped.is_set():
        # `consume` waits until it has as many as it may take; so the first is waited for, and others taken along.
        first = consumer.poll(POLL_S)
        messages = [] if first is None else [first, *consumer.consume(AT_ONCE, 0)]
        now = clock.monotonic()
        for message in messages:
            take(tally, message, now)
        tally.tell(now)
    tally.tell(clock.monotonic(), last=True)
    consumer.close()


def consumer_settings(bootstrap: str, name: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "group.id": "catena-loadtest",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 500,
        "fetch.min.bytes": 1,
        "queued.max.messages.kbytes": 65_536,
        **PATIENCE,
    }


def take(tally: Tally, message: Any, now: float) -> None:
    error, value = message.error(), message.value()
    if error is not None:
        tally.error(error.name())
        return
    try:
        tally.read(due_s(value), now, len(value))
    except (TypeError, ValueError):
        tally.error("a record that no hammer has sent")
