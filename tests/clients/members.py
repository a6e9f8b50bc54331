"""Members of consumer groups, of the clients that are polled; they remember what they read and what they lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.clients.conftest import Setting, settings
from tests.clients.kafka_python import KafkaConsumer
from tests.clients.waiting import PATIENCE_S, until

POLL_S = 0.05
Place = tuple[int, int]
"""Partition and offset."""


class Member(Protocol):
    read: list[Place]

    @property
    def partitions(self) -> list[int]: ...

    def poll(self) -> None: ...

    def close(self) -> None: ...


class LibrdkafkaMember:
    def __init__(self, bootstrap: str, group: str, topic: str, **config: Setting) -> None:
        """Configs by librdkafka's names, with _ for the dots."""
        self.read: list[Place] = []
        self.revoked: list[int] = []
        """Every partition that it has had to give back."""
        self.errors: list[KafkaError] = []
        self.consumer = Consumer(settings(bootstrap, group_id=group, auto_offset_reset="earliest", **config))
        self.consumer.subscribe([topic], on_revoke=self._on_revoke)

    @property
    def partitions(self) -> list[int]:
        return sorted(assigned.partition for assigned in self.consumer.assignment())

    def poll(self) -> None:
        for message in self.consumer.consume(500, POLL_S):
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is not None:
                self.errors.append(error)
            else:
                assert partition is not None
                assert offset is not None
                self.read.append((partition, offset))

    def close(self) -> None:
        self.consumer.close()

    def _on_revoke(self, _consumer: Consumer, revoked: list[TopicPartition]) -> None:
        self.revoked += [lost.partition for lost in revoked]


class KafkaPythonMember:
    """Polls in a thread of its own: a poll that ends before the group has settled begins to join all over again."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.read: list[Place] = []
        self.partitions: list[int] = []
        self._ends = threading.Event()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=500,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def poll(self) -> None:
        """It does so by itself."""

    def close(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(self._consumer) as consumer:
            while not self._ends.is_set():
                for messages in consumer.poll(timeout_ms=1000).values():
                    self.read += [(message.partition, message.offset) for message in messages]
                self.partitions = sorted(assigned.partition for assigned in consumer.assignment())


def wait_until_shared(members: Sequence[Member], shares: Sequence[int]) -> None:
    """Until the members have so many partitions each, in any order, and no two have the same."""

    def shared() -> bool:
        given = [partition for member in members for partition in member.partitions]
        return len(set(given)) == len(given) and sorted(len(m.partitions) for m in members) == sorted(shares)

    wait_while_polling(members, shared, f"the members share the partitions as {shares}")


def wait_until_read(members: Sequence[Member], places: set[Place]) -> None:
    """Until they have read all of these, together."""

    def done() -> bool:
        return places <= {place for member in members for place in member.read}

    wait_while_polling(members, done, f"{len(places)} records are read")


def wait_while_polling(
    members: Sequence[Member], condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S
) -> None:
    def look() -> bool:
        for member in members:
            member.poll()
        return condition()

    until(look, what, within_s)
