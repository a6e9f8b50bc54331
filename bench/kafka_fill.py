"""Writes many small records in small batches, as fast as they are acked.

python -m bench.kafka_fill ADDRESS TOPIC RECORDS
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer

from bench.kafka_clients import wait_for_go
from bench.kafka_connections import flush, put

VALUE = bytes(100)
BATCH_RECORDS = 50
IN_QUEUE = 5_000


def fill(address: str, topic: str, records: int) -> None:
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 0,
            "batch.num.messages": BATCH_RECORDS,
            "queue.buffering.max.messages": IN_QUEUE,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(topic, timeout=30)
    wait_for_go()
    for _ in range(records):
        put(producer, topic, VALUE, 0, lambda error, _: failures.append(error))
    flush(producer, failures)


if __name__ == "__main__":
    fill(sys.argv[1], sys.argv[2], int(sys.argv[3]))
