"""Latency at a given rate, with no coordinated omission: a record counts from when it should have been sent.

    python -m bench.kafka_open_loop produce|consume ADDRESS TOPIC RATE SECONDS

Records are due at fixed times, whatever became of those before, and carry these times. The producer takes the time of
the ack, a consumer in another process the time when it has the record; both read the same clock of the machine. Records
of the first moments are sent, and not counted.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.figures import percentile
from bench.kafka_clients import Client, run_clients, wait_for_go

VALUE_BYTES = 100
WARM_UP_S = 2.0
NOT_COUNTED = bytes(8)
LEFT_BEHIND_S = 240.0
"""How long the last records may take to come back after the last one was due: a server that is too slow is told by
its latencies, not by an error."""


class Latencies(NamedTuple):
    """In milliseconds."""

    records: int
    p50: float
    p99: float
    p999: float


def latencies(nanoseconds: Sequence[float]) -> Latencies:
    p50, p99, p999 = (percentile(nanoseconds, percent) / 1e6 for percent in (50, 99, 99.9))
    return Latencies(len(nanoseconds), p50, p99, p999)


def measure(address: str, topic: str, rate: float, seconds: float) -> tuple[Latencies, Latencies]:
    """Of produce and of end to end, on partition 0 of a topic that is there."""
    clients = [Client("kafka_open_loop", action, address, topic, rate, seconds) for action in ("consume", "produce")]
    _, (consumed, produced) = run_clients(clients)
    return Latencies(*json.loads(produced)), Latencies(*json.loads(consumed))


def schedule(rate: float, seconds: float, start: int) -> Iterator[tuple[int, bool]]:
    """When each record is due, in nanoseconds, and whether it counts."""
    warm_up = int(rate * WARM_UP_S)
    for number in range(warm_up + int(rate * seconds)):
        yield start + int(number * 1e9 / rate), number >= warm_up


def produce(address: str, topic: str, rate: float, seconds: float) -> Latencies:
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 0, "acks": "all", "queue.buffering.max.messages": 10_000_000}
    )
    found = array("q")
    failures: list[str] = []

    def acked(error: Any, message: Any) -> None:
        now = time.monotonic_ns()
        if error is not None:
            failures.append(str(error))
        elif (due := message.value()[:8]) != NOT_COUNTED:
            found.append(now - int.from_bytes(due, "big"))

    producer.produce(topic, bytes(VALUE_BYTES), partition=0)
    assert producer.flush(30) == 0, "the first record is not acked"
    done = threading.Event()

    def take_acks() -> None:
        while not done.is_set():
            producer.poll(0.05)

    # A thread of its own: to wait for acks in the one that sends would delay what is due.
    poller = threading.Thread(target=take_acks)
    wait_for_go()
    poller.start()
    rest = bytes(VALUE_BYTES - 8)
    expected = 0
    for due, counts in schedule(rate, seconds, time.monotonic_ns() + 100_000_000):
        wait = due - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        expected += counts
        producer.produce(
            topic, (due.to_bytes(8, "big") if counts else NOT_COUNTED) + rest, partition=0, on_delivery=acked
        )
    producer.flush(LEFT_BEHIND_S)
    done.set()
    poller.join()
    assert len(found) == expected, f"{len(found)} of {expected} acks; {len(failures)} failed, {failures[:1]}"
    return latencies(found)


def consume(address: str, topic: str, rate: float, seconds: float) -> Latencies:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, end)])
    consumer.poll(0)
    wait_for_go()
    found = array("q")
    expected = int(rate * seconds)
    deadline = time.monotonic() + WARM_UP_S + seconds + LEFT_BEHIND_S
    while len(found) < expected and time.monotonic() < deadline:
        # `consume` waits until it has as many as it may take; so the first is waited for, and others taken along.
        first = consumer.poll(0.1)
        messages = [] if first is None else [first, *consumer.consume(1000, 0)]
        now = time.monotonic_ns()
        for message in messages:
            value = message.value()
            if message.error() is None and value is not None and value[:8] != NOT_COUNTED:
                found.append(now - int.from_bytes(value[:8], "big"))
    consumer.close()
    assert len(found) == expected, f"{len(found)} of {expected} records came"
    return latencies(found)


def main(arguments: Sequence[str]) -> None:
    action, address, topic, rate, seconds = arguments
    gc.disable()
    sys.setswitchinterval(0.0005)
    act = {"produce": produce, "consume": consume}[action]
    print(json.dumps(act(address, topic, float(rate), float(seconds))))


if __name__ == "__main__":
    main(sys.argv[1:])
