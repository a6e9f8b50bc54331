"""A producer under load, which knows what was acked and when, and can say whether the log holds just that."""

from __future__ import annotations

import time
from itertools import pairwise

from confluent_kafka import KafkaError, Message, Producer

from tests.clients.clients import CLIENTS
from tests.clients.conftest import settings
from tests.clients.waiting import until

PARTITIONS = 6
CLIENT_TIMEOUT_MS = 3000


class Load:
    """An idempotent producer that writes numbers in their order, number n to partition n modulo their count."""

    def __init__(self, bootstrap: str, topic: str, reconnect_max_ms: int = 10_000) -> None:
        self.topic = topic
        self.sent = 0
        self.acked: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        """Of each partition: the offset and the number of each record, in the order of their acks."""
        self.ack_times: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self.faults: list[KafkaError] = []
        self._producer = Producer(
            settings(
                bootstrap,
                enable_idempotence=True,
                linger_ms=1,
                message_timeout_ms=120_000,
                # A paused node keeps its connections: it is the client that has to give up on them.
                socket_timeout_ms=CLIENT_TIMEOUT_MS,
                request_timeout_ms=CLIENT_TIMEOUT_MS,
                reconnect_backoff_max_ms=reconnect_max_ms,
            )
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                self.topic, b"%d" % self.sent, partition=self.sent % PARTITIONS, on_delivery=self._delivered
            )
            self.sent += 1
            self._producer.poll(0)

    def write_for(self, seconds: float, records: int) -> None:
        """So many, evenly over this time."""
        began = time.monotonic()
        for number in range(records):
            self.write(1)
            self._producer.poll(max(0.0, began + seconds * (number + 1) / records - time.monotonic()))

    def wait_until_acked(self) -> None:
        """All that was written so far."""

        def acked() -> bool:
            self._producer.poll(0.01)
            return sum(map(len, self.acked)) == self.sent

        until(acked, "all that was written is acked", 60)

    def finish(self) -> None:
        assert self._producer.flush(120) == 0
        assert self.faults == []
        assert sum(map(len, self.acked)) == self.sent

    def longest_gap(self) -> float:
        """Between two acks of a partition."""
        return max(after - before for times in self.ack_times for before, after in pairwise(times))

    def check(self, bootstrap: str) -> None:
        """What is in the log equals, record by record, what was acked."""
        read = CLIENTS[0].read(bootstrap, self.topic, range(PARTITIONS), self.sent)
        for partition in range(PARTITIONS):
            found = [(rec.offset, int(rec.value or b"")) for rec in read if rec.partition == partition]
            numbers = list(range(partition, self.sent, PARTITIONS))
            assert found == list(enumerate(numbers)), "one copy of each, in order, and nothing else"
            assert self.acked[partition] == found, "each where its ack said"

    def _delivered(self, fault: KafkaError | None, message: Message) -> None:
        if fault is not None:
            self.faults.append(fault)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.acked[partition].append((offset, int(value)))
        self.ack_times[partition].append(time.monotonic())
