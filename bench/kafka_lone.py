"""A producer with one record in flight: it sends the next when this one is acked.

python -m bench.kafka_lone ADDRESS TOPIC SECONDS       prints the seconds of each, as JSON
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Producer

from bench.kafka_clients import wait_for_go

VALUE = bytes(100)
ACK_MAX_S = 30.0


def produce(address: str, topic: str, seconds: float) -> list[float]:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})
    send(producer, topic)
    wait_for_go()
    found = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        send(producer, topic)
        found.append(time.perf_counter() - started)
    return found


def send(producer: Producer, topic: str) -> None:
    acked: list[object] = []
    producer.produce(topic, VALUE, partition=0, on_delivery=lambda error, _: acked.append(error))
    deadline = time.perf_counter() + ACK_MAX_S
    while not acked and time.perf_counter() < deadline:
        producer.poll(1)
    assert acked == [None], f"a record was not acked: {acked}"


if __name__ == "__main__":
    print(json.dumps(produce(sys.argv[1], sys.argv[2], float(sys.argv[3]))))
