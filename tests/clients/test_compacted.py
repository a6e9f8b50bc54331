"""Consumers of a topic that is compacted: who rebuilds its state from it gets the same one, before, during and after.

What was removed leaves empty batches, which no client may stumble over: neither when a whole answer is one of them, nor
when it asks for an offset inside of one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition as AioPartition  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from catena import jobs
from catena.config import Settings, load
from catena.pipeline.settings import CompactSettings, PipelineSettings, TierSettings
from tests.clients.conftest import create_topic, fresh, running, settings
from tests.clients.kafka_python import KafkaConsumer
from tests.clients.kafka_python import TopicPartition as PythonPartition
from tests.clients.nodes import Cluster
from tests.clients.waiting import PATIENCE_S, until
from tests.jobs.topics import inline

pytest.importorskip("pyarrow", reason="what compacts comes with the spark extra")

KEYS, TIMES = 10, 12
TINY, LARGE = 1, 1 << 20
"""Bytes of an answer: with the first of them each has one batch."""

Found = list[tuple[int, bytes | None, bytes | None]]
Read = Callable[[str, str, int, int, int], Found]
"""Of a topic's only partition, from an offset on, up to one, with answers of so many bytes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compacted")


@pytest.fixture(scope="module")
def nodes(folder: Path) -> Iterator[Cluster]:
    yield from running(Cluster(1, folder, {}))


@pytest.fixture(scope="module")
def stores(folder: Path) -> Settings:
    """What jobs work on."""
    pipeline = PipelineSettings(
        tier=TierSettings(min_age_ms=0, min_bytes=0, segment_bytes=20_000),
        compact=CompactSettings(group_bytes=20_000, bucket_records=50),
    )
    return msgspec.structs.replace(load(data=str(folder / "data")), pipeline=pipeline)


def by_librdkafka(bootstrap: str, topic: str, start: int, end: int, max_bytes: int) -> Found:
    config = settings(bootstrap, group_id=fresh("reader"), enable_auto_commit=False, fetch_message_max_bytes=max_bytes)
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, start)])
        found: Found = []

        def poll() -> bool:
            for message in consumer.consume(100, 0.1):
                assert message.error() is None, message.error()
                offset, key, value = message.offset(), message.key(), message.value()
                assert offset is not None
                assert not isinstance(key, str)
                assert not isinstance(value, str)
                found.append((offset, key, value))
            return bool(found) and found[-1][0] >= end - 1

        until(poll, f"offset {end - 1}, after {found}")
    return found


def by_kafka_python(bootstrap: str, topic: str, start: int, end: int, max_bytes: int) -> Found:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), enable_auto_commit=False, max_partition_fetch_bytes=max_bytes
    )
    with closing(consumer):
        consumer.assign([PythonPartition(topic, 0)])
        consumer.seek(PythonPartition(topic, 0), start)
        found: Found = []

        def poll() -> bool:
            for messages in consumer.poll(timeout_ms=100).values():
                found.extend((message.offset, message.key, message.value) for message in messages)
            return bool(found) and found[-1][0] >= end - 1

        until(poll, f"offset {end - 1}, after {found}")
    return found


def by_aiokafka(bootstrap: str, topic: str, start: int, end: int, max_bytes: int) -> Found:
    async def read() -> Found:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=max_bytes
        )
        found: Found = []
        async with asyncio.timeout(PATIENCE_S), consumer:
            consumer.assign([AioPartition(topic, 0)])
            consumer.seek(AioPartition(topic, 0), start)
            while not found or found[-1][0] < end - 1:
                message = await consumer.getone()
                found.append((message.offset, message.key, message.value))
        return found

    return asyncio.run(read())


READERS = {"librdkafka": by_librdkafka, "kafka-python": by_kafka_python, "aiokafka": by_aiokafka}


class Table:
    """A topic that is compacted, and what is to be in it."""

    def __init__(self, bootstrap: str, **configs: str) -> None:
        self.bootstrap = bootstrap
        self.topic = create_topic(AdminClient(settings(bootstrap)), 1, cleanup_policy="compact", **configs)
        self.state: dict[bytes, bytes] = {}
        self.end = 0
        self._producer = Producer(settings(bootstrap, enable_idempotence=True, linger_ms=0, batch_num_messages=3))

    def write(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        faults: list[object] = []
        for key, value in pairs:
            self._producer.produce(
                self.topic, key=key, value=value, partition=0, on_delivery=lambda f, _: faults.append(f)
            )
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value
        assert self._producer.flush(PATIENCE_S) == 0
        assert set(faults) == {None}
        self.end += len(pairs)

    def overwrite(self, first: int) -> None:
        """Each key again and again."""
        self.write(
            [(b"%d" % (number % KEYS), b"%d %s" % (first + number, b"x" * 50)) for number in range(KEYS * TIMES)]
        )

    def read(self, read: Read, start: int = 0, max_bytes: int = LARGE) -> Found:
        found = read(self.bootstrap, self.topic, start, self.end, max_bytes)
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        return found

    def wait_for(self, count: int) -> None:
        """Nodes go by what they have seen of a chain for some seconds."""
        until(lambda: len(self.read(by_librdkafka)) == count, f"{count} records")


def state_of(found: Found) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for _, key, value in found:
        assert key is not None
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


def compact(stores: Settings, topic: str) -> jobs.CompactRunReport:
    async def both() -> jobs.CompactRunReport:
        which = jobs.Which(topic)
        tiered = await jobs.tier(stores, which, jobs.MAX_OFFSET, open_work=inline(stores))
        assert tiered.failed == 0, tiered
        return await jobs.compact(stores, which, open_work=inline(stores))

    report = asyncio.run(both())
    assert report.failed == 0, report
    return report


@pytest.fixture(scope="module")
def sparse(nodes: Cluster, stores: Settings) -> Table:
    """A few records in a log of hundreds of offsets: they are led, followed and surrounded by gaps."""
    table = Table(nodes.bootstrap, delete_retention_ms="0", min_cleanable_dirty_ratio="0")
    table.overwrite(0)
    table.write([(b"first", b"1")])
    table.overwrite(1000)
    table.write([(b"%d" % number, None) for number in range(KEYS // 2)])
    compact(stores, table.topic)
    table.write([(b"last", b"2")])
    compact(stores, table.topic)
    table.write([(b"not tiered", b"3")])
    table.wait_for(KEYS // 2 + 3)
    return table


@pytest.mark.parametrize("max_bytes", [TINY, LARGE])
@pytest.mark.parametrize("reader", READERS)
def test_gaps_are_passed_over(sparse: Table, reader: str, max_bytes: int) -> None:
    found = sparse.read(READERS[reader], 0, max_bytes)
    assert state_of(found) == sparse.state
    assert [offset for offset, _, _ in found] == [120, *range(236, 241), 246, 247]


@pytest.mark.parametrize("reader", READERS)
def test_whoever_asks_for_an_offset_in_a_gap_gets_what_follows(sparse: Table, reader: str) -> None:
    for start, first in ((1, 120), (119, 120), (121, 236), (130, 236), (238, 238), (241, 246), (245, 246)):
        found = sparse.read(READERS[reader], start, TINY)
        assert found[0][0] == first, (start, found)


def test_offsets_by_time_and_the_newest_are_found(sparse: Table) -> None:
    admin = AdminClient(settings(sparse.bootstrap))
    specs: Any = OffsetSpec

    def offset_of(spec: Any) -> int:
        place = TopicPartition(sparse.topic, 0)
        return int(admin.list_offsets({place: spec})[place].result(30).offset)

    assert offset_of(specs.earliest()) == 0
    assert offset_of(specs.latest()) == 248
    assert offset_of(specs.for_timestamp(1)) == 120
    assert offset_of(specs.max_timestamp()) in (246, 247)


@pytest.mark.parametrize("bursts", [1, pytest.param(6, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_the_state_is_the_same_before_during_and_after(nodes: Cluster, stores: Settings, bursts: int) -> None:
    """A consumer reads from the beginning over and over while the topic is written, tiered and compacted."""
    table = Table(nodes.bootstrap, min_cleanable_dirty_ratio="0.1")
    shrunk = 0
    for burst in range(bursts):
        table.overwrite(1000 * burst)
        table.write([(b"%d" % burst, None), (b"%d" % (burst + 4), b"other")])
        assert state_of(table.read(by_librdkafka)) == table.state
        reading = Reading(table)
        with reading:
            (report,) = compact(stores, table.topic).partitions
        assert report.outcome == "compacted"
        shrunk += report.records_before - report.records
        table.wait_for(report.records)
        assert reading.rounds > 0
        for reader in READERS.values():
            assert state_of(table.read(reader)) == table.state
    assert shrunk > bursts * KEYS * (TIMES - 1)


class Reading:
    """Rebuilds the state of a table over and over, in a thread."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.rounds = 0
        self.faults: list[BaseException] = []

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self.faults == []

    def _read(self) -> None:
        try:
            while not self._is_over.is_set() or not self.rounds:
                assert state_of(self._table.read(by_librdkafka, 0, 3000)) == self._table.state
                self.rounds += 1
        except BaseException as error:
            self.faults.append(error)
