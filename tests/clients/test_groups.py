"""Groups of real members: who joins gets a share, who leaves or dies gives it up, and what was committed stays so."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.clients.clients import CLIENTS, Rec
from tests.clients.conftest import fresh, settings
from tests.clients.members import (
    KafkaPythonMember,
    LibrdkafkaMember,
    Member,
    wait_until_read,
    wait_until_shared,
    wait_while_polling,
)
from tests.clients.nodes import Cluster
from tests.clients.waiting import PATIENCE_S, until

M = TypeVar("M", bound=Member)

PARTITIONS = 4
EACH = 25
"""Records that are written to each partition, each time."""
SESSION_MS = 6000
"""The shortest that Kafka's brokers allow."""

RANGE = {"group_protocol": "classic", "partition_assignment_strategy": "range", "heartbeat_interval_ms": "500"}
STICKY = {**RANGE, "partition_assignment_strategy": "cooperative-sticky"}
NEW = {"group_protocol": "consumer"}
PROTOCOLS = pytest.mark.parametrize("config", [RANGE, STICKY, NEW], ids=["range", "cooperative-sticky", "consumer"])


def write(cluster: Cluster, topic: str, rounds: int) -> set[tuple[int, int]]:
    """One more round of records; returns the places of all so far."""
    records = [Rec(partition, None, b"%d" % n) for partition in range(PARTITIONS) for n in range(EACH)]
    CLIENTS[0].write(cluster.bootstrap, topic, records, "none")
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(rounds * EACH)}


def committed(cluster: Cluster, group: str, topic: str) -> list[int]:
    with closing(Consumer(settings(cluster.bootstrap, group_id=group))) as consumer:
        asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return [found.offset for found in consumer.committed(asked, PATIENCE_S)]


def join_and_leave(cluster: Cluster, topic: str, group: str, member: Callable[[], M]) -> M:
    """The first is alone, then there are two, then the second is alone; each time all records are read."""
    places = write(cluster, topic, 1)
    with ExitStack() as opened:
        first = opened.enter_context(closing(member()))
        wait_until_shared([first], [4])
        wait_until_read([first], places)
        second = opened.enter_context(closing(member()))
        wait_until_shared([first, second], [2, 2])
        places = write(cluster, topic, 2)
        wait_until_read([first, second], places)
        first.close()
        wait_until_shared([second], [4])
        places = write(cluster, topic, 3)
        wait_until_read([second], {place for place in places if place[1] >= 2 * EACH})
    assert sorted([*first.read, *second.read]) == sorted(places), "each record once: offsets are committed on leaving"
    assert committed(cluster, group, topic) == [3 * EACH] * PARTITIONS
    return first


@PROTOCOLS
def test_members_join_and_leave(cluster: Cluster, topic: str, config: dict[str, str]) -> None:
    group = fresh("group")
    first = join_and_leave(cluster, topic, group, lambda: LibrdkafkaMember(cluster.bootstrap, group, topic, **config))
    gave_up_while_sharing = len(first.revoked) - 2  # and the 2 that it had when it left
    assert gave_up_while_sharing == (4 if config is RANGE else 2), "only the eager protocol takes all away"


def test_members_of_kafka_python_join_and_leave(cluster: Cluster, topic: str) -> None:
    group = fresh("group")
    join_and_leave(cluster, topic, group, lambda: KafkaPythonMember(cluster.bootstrap, group, topic))


async def test_members_of_aiokafka_join_and_leave(cluster: Cluster, topic: str) -> None:
    group = fresh("group")
    places = await asyncio.to_thread(write, cluster, topic, 1)
    read: list[tuple[int, int]] = []

    async def run(member: AIOKafkaConsumer, until_read: set[tuple[int, int]]) -> None:
        while not until_read <= set(read):
            for messages in (await member.getmany(timeout_ms=50)).values():
                read.extend((message.partition, message.offset) for message in messages)

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=500,
        )

    async with asyncio.timeout(2 * PATIENCE_S), member() as second:
        async with member() as first:
            await asyncio.gather(run(first, places), run(second, places))
            assert {len(first.assignment()), len(second.assignment())} == {2}
        places = await asyncio.to_thread(write, cluster, topic, 2)
        await run(second, places)
        assert len(second.assignment()) == PARTITIONS
    assert sorted(read) == sorted(places)
    assert await asyncio.to_thread(committed, cluster, group, topic) == [2 * EACH] * PARTITIONS


@contextmanager
def process(cluster: Cluster, group: str, topic: str, **config: str | int) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own, which is killed at the end."""
    given = json.dumps({name.replace("_", "."): value for name, value in config.items()})
    command = [sys.executable, "-m", "tests.clients.lone_member", cluster.bootstrap, group, topic, given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        try:
            yield member
        finally:
            member.kill()


def crash(cluster: Cluster, topic: str, **config: str | int) -> None:
    group = fresh("group")
    with process(cluster, group, topic, **config) as lone:
        assert lone.stdout is not None
        assert json.loads(lone.stdout.readline()) == [0, 1, 2, 3]
        with closing(LibrdkafkaMember(cluster.bootstrap, group, topic, **config)) as survivor:
            wait_until_shared([survivor], [2])
            lone.kill()
            wait_while_polling([survivor], lambda: len(survivor.partitions) == 4, "it gets what the dead one had", 80)
            wait_until_read([survivor], write(cluster, topic, 1))


def test_a_member_dies(cluster: Cluster, topic: str) -> None:
    crash(cluster, topic, **STICKY, session_timeout_ms=SESSION_MS)


@pytest.mark.long
def test_a_member_of_the_new_protocol_dies(cluster: Cluster, topic: str) -> None:
    """Its session lasts as long as the broker says, which is 45 s."""
    crash(cluster, topic, **NEW)


@PROTOCOLS
def test_a_static_member_comes_back_without_a_rebalance(cluster: Cluster, topic: str, config: dict[str, str]) -> None:
    group = fresh("group")

    def member(name: str) -> LibrdkafkaMember:
        return LibrdkafkaMember(cluster.bootstrap, group, topic, group_instance_id=name, **config)

    with closing(member("a")) as a:
        b = member("b")
        wait_until_shared([a, b], [2, 2])
        kept, had, revoked = a.partitions, b.partitions, list(a.revoked)
        b.close()
        places = write(cluster, topic, 1)
        with closing(member("b")) as b:
            wait_until_read([a, b], places)
            assert b.partitions == had
            assert a.partitions == kept
            assert a.revoked == revoked, "nobody else was disturbed"


def test_of_two_static_members_with_one_name_the_first_is_fenced(cluster: Cluster, topic: str) -> None:
    group = fresh("group")
    with closing(LibrdkafkaMember(cluster.bootstrap, group, topic, group_instance_id="x", **RANGE)) as first:
        wait_until_shared([first], [4])
        with closing(LibrdkafkaMember(cluster.bootstrap, group, topic, group_instance_id="x", **RANGE)) as second:
            wait_until_shared([second], [4])

            def fenced() -> bool:
                try:
                    first.poll()
                except KafkaException as fault:
                    first.errors.append(fault.args[0])
                return any(error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID) for error in first.errors)

            until(fenced, "the first one is told")
            second.poll()
            assert second.partitions == [0, 1, 2, 3]


def test_a_late_commit_of_an_earlier_generation_is_refused(cluster: Cluster, topic: str) -> None:
    group = fresh("group")
    with closing(LibrdkafkaMember(cluster.bootstrap, group, topic, **RANGE, enable_auto_commit=False)) as member:
        wait_until_shared([member], [4])
        with closing(Consumer(settings(cluster.bootstrap, group_id=group))) as stranger:
            with pytest.raises(KafkaException) as refused:
                stranger.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
            assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert committed(cluster, group, topic) == [-1001] * PARTITIONS
