"""Many connections over many partitions: librdkafka producers or consumers, several in each of a few processes.

    python -m bench.kafka_connections produce|consume ADDRESS TOPIC CONNECTIONS PARTITIONS RECORDS SHARE OF

This process has the connections SHARE, SHARE + OF, ... of CONNECTIONS. Each has partitions of its own, and fills one
batch of 1 MB after the other. RECORDS is for all connections together; producers and consumers agree on what is where.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.kafka_clients import CLIENT_MAX_S, RECORD_BYTES, Client, run_clients, wait_for_go

BATCH_RECORDS = 950
PROCESSES = 2
QUEUE_KIB = 16 << 10
AT_ONCE = 2000
QUEUE_FULL_S = 0.01


class Load(NamedTuple):
    address: str
    topic: str
    connections: int
    partitions: int
    records: int

    def partitions_of(self, connection: int) -> list[int]:
        return list(range(connection, self.partitions, self.connections))

    def batches_of(self, partition: int) -> int:
        """Whole batches only, dealt out one by one."""
        batches = self.records // BATCH_RECORDS
        return batches // self.partitions + (partition < batches % self.partitions)

    @property
    def sent(self) -> int:
        return self.records // BATCH_RECORDS * BATCH_RECORDS


def drive(action: str, load: Load) -> float:
    """Seconds that it took all connections together."""
    clients = [Client("kafka_connections", action, *load, share, PROCESSES) for share in range(PROCESSES)]
    return run_clients(clients)[0]


def produce(load: Load, connections: Sequence[int]) -> None:
    value = os.urandom(RECORD_BYTES)
    settings = {
        "bootstrap.servers": load.address,
        "queue.buffering.max.kbytes": QUEUE_KIB,
        "linger.ms": 50,
        "delivery.report.only.error": True,
    }
    producers = {connection: Producer(settings) for connection in connections}
    for producer in producers.values():
        producer.list_topics(load.topic, timeout=30)
    wait_for_go()
    failures: list[object] = []
    todo = [
        (number, connection, partition)
        for connection in connections
        for partition in load.partitions_of(connection)
        for number in range(load.batches_of(partition))
    ]
    for _, connection, partition in sorted(todo):
        producer = producers[connection]
        for _ in range(BATCH_RECORDS):
            put(producer, load.topic, value, partition, lambda error, _: failures.append(error))
    for producer in producers.values():
        flush(producer, failures)


def put(producer: Producer, topic: str, value: bytes, partition: int, failed: Callable[[Any, Any], None]) -> None:
    for _ in range(int(CLIENT_MAX_S / QUEUE_FULL_S)):
        try:
            producer.produce(topic, value, partition=partition, on_delivery=failed)
            return
        except BufferError:
            producer.poll(QUEUE_FULL_S)
    raise TimeoutError(f"partition {partition} takes no more records")


def flush(producer: Producer, failures: Sequence[object]) -> None:
    left = producer.flush(CLIENT_MAX_S)
    if left or failures:
        raise RuntimeError(f"{left} records are not acked, {len(failures)} failed: {failures[:1]}")


def consume(load: Load, connections: Sequence[int]) -> None:
    consumers = []
    left = 0
    for connection in connections:
        consumer = Consumer({"bootstrap.servers": load.address, "group.id": "bench", "enable.auto.commit": False})
        consumer.list_topics(load.topic, timeout=30)
        consumers.append((consumer, load.partitions_of(connection)))
        left += sum(load.batches_of(partition) for partition in load.partitions_of(connection)) * BATCH_RECORDS
    wait_for_go()
    for consumer, partitions in consumers:
        consumer.assign([TopicPartition(load.topic, partition, 0) for partition in partitions])
    deadline = time.monotonic() + CLIENT_MAX_S
    while left > 0:
        found = sum(len(consumer.consume(AT_ONCE, 0)) for consumer, _ in consumers)
        left -= found
        assert time.monotonic() < deadline, f"{left} records did not come"
        if not found:
            time.sleep(0.001)
    for consumer, _ in consumers:
        consumer.close()


def main(arguments: Sequence[str]) -> None:
    action, address, topic, *numbers = arguments
    connections, partitions, records, share, of = map(int, numbers)
    act = {"produce": produce, "consume": consume}[action]
    act(Load(address, topic, connections, partitions, records), range(share, connections, of))


if __name__ == "__main__":
    main(sys.argv[1:])
