"""The clients that people use, each behind the same two calls: write these records, read those that are there.

Only what differs between them is here. What a client can't do is said (`can_stamp`, `compressions`).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition as AioPartition  # type: ignore[import-untyped]
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.clients.conftest import fresh, settings
from tests.clients.kafka_python import KafkaConsumer, KafkaProducer, has_snappy
from tests.clients.kafka_python import TopicPartition as PythonPartition
from tests.clients.waiting import PATIENCE_S, until

NONE = "none"
COMPRESSIONS = (NONE, "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")


class Rec(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1
    offset: int = -1


class Client(Protocol):
    name: str

    def __hash__(self) -> int: ...

    can_stamp: bool
    """Whether it lets its user choose timestamps."""
    can_null_headers: bool
    """Whether a header may have no value."""

    @property
    def compressions(self) -> Sequence[str]: ...

    def write(self, bootstrap: str, topic: str, records: Sequence[Rec], compression: str, acks: str = "all") -> None:
        """Returns when all are acked."""

    def read(self, bootstrap: str, topic: str, partitions: Sequence[int], count: int) -> list[Rec]:
        """So many from the beginning of these partitions, and nothing that comes after."""


class Librdkafka:
    name = "confluent-kafka"
    can_stamp = True
    can_null_headers = True
    compressions: Sequence[str] = COMPRESSIONS

    def write(self, bootstrap: str, topic: str, records: Sequence[Rec], compression: str, acks: str = "all") -> None:
        producer = Producer(settings(bootstrap, compression_type=compression, acks=acks))
        faults: list[KafkaError | None] = []
        for rec in records:
            producer.produce(
                topic,
                key=rec.key,
                value=rec.value,
                partition=rec.partition,
                headers=list(rec.headers),
                timestamp=max(rec.timestamp, 0),
                on_delivery=lambda fault, _: faults.append(fault),
            )
        assert producer.flush(PATIENCE_S) == 0
        assert [str(f) for f in faults if f is not None] == [], faults

    def read(self, bootstrap: str, topic: str, partitions: Sequence[int], count: int) -> list[Rec]:
        consumer = Consumer(settings(bootstrap, group_id=fresh("reader"), enable_auto_commit=False))
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        try:
            found: list[Message] = []

            def poll() -> bool:
                found.extend(consumer.consume(count, 0.1))
                return len(found) >= count

            until(poll, f"{count} records")
            return [_from_librdkafka(message) for message in found]
        finally:
            consumer.close()


def _from_librdkafka(message: Message) -> Rec:
    assert message.error() is None, message.error()
    partition, offset, headers = message.partition(), message.offset(), message.headers() or []
    assert isinstance(headers, list)
    assert partition is not None
    assert offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    pairs = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers)
    return Rec(partition, key, value, pairs, message.timestamp()[1], offset)


class KafkaPython:
    name = "kafka-python"
    can_stamp = True
    can_null_headers = False

    @property
    def compressions(self) -> Sequence[str]:
        """It wants the package python-snappy."""
        return [name for name in COMPRESSIONS if name != "snappy" or has_snappy()]

    def write(self, bootstrap: str, topic: str, records: Sequence[Rec], compression: str, acks: str = "all") -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            compression_type=None if compression == NONE else compression,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
        )
        with closing(producer):
            sent = [
                producer.send(
                    topic,
                    key=rec.key,
                    value=rec.value,
                    partition=rec.partition,
                    headers=list(rec.headers),
                    timestamp_ms=None if rec.timestamp < 0 else rec.timestamp,
                )
                for rec in records
            ]
            producer.flush(PATIENCE_S)
            for future in sent:
                future.get(PATIENCE_S)

    def read(self, bootstrap: str, topic: str, partitions: Sequence[int], count: int) -> list[Rec]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), enable_auto_commit=False)
        try:
            consumer.assign([PythonPartition(topic, partition) for partition in partitions])
            consumer.seek_to_beginning()
            found: list[Rec] = []

            def poll() -> bool:
                for messages in consumer.poll(timeout_ms=100, max_records=count - len(found)).values():
                    found.extend(
                        Rec(m.partition, m.key, m.value, tuple(map(tuple, m.headers)), m.timestamp, m.offset)
                        for m in messages
                    )
                return len(found) >= count

            until(poll, f"{count} records")
            return found
        finally:
            consumer.close()


class Aiokafka:
    name = "aiokafka"
    can_stamp = True
    can_null_headers = True
    compressions: Sequence[str] = COMPRESSIONS

    def write(self, bootstrap: str, topic: str, records: Sequence[Rec], compression: str, acks: str = "all") -> None:
        asyncio.run(self._write(bootstrap, topic, records, compression, acks))

    async def _write(self, bootstrap: str, topic: str, records: Sequence[Rec], compression: str, acks: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == NONE else compression,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
        )
        async with asyncio.timeout(PATIENCE_S), producer:
            sent = [
                await producer.send(
                    topic,
                    key=rec.key,
                    value=rec.value,
                    partition=rec.partition,
                    headers=list(rec.headers),
                    timestamp_ms=None if rec.timestamp < 0 else rec.timestamp,
                )
                for rec in records
            ]
            await asyncio.gather(*sent)

    def read(self, bootstrap: str, topic: str, partitions: Sequence[int], count: int) -> list[Rec]:
        return asyncio.run(self._read(bootstrap, topic, partitions, count))

    async def _read(self, bootstrap: str, topic: str, partitions: Sequence[int], count: int) -> list[Rec]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        found: list[Rec] = []
        async with asyncio.timeout(PATIENCE_S), consumer:
            consumer.assign([AioPartition(topic, partition) for partition in partitions])
            await consumer.seek_to_beginning()
            while len(found) < count:
                m = await consumer.getone()
                found.append(Rec(m.partition, m.key, m.value, tuple(map(tuple, m.headers)), m.timestamp, m.offset))
        return found


class Kcat:
    """Keys and values as text, which is how people use it."""

    name = "kcat"
    can_stamp = False
    can_null_headers = False
    compressions: Sequence[str] = COMPRESSIONS

    def write(self, bootstrap: str, topic: str, records: Sequence[Rec], compression: str, acks: str = "all") -> None:
        """One run for each partition and set of headers, which it gives to all records."""
        for partition, headers in sorted({(rec.partition, rec.headers) for rec in records}):
            lines = [
                (rec.key or b"") + b"\t" + (rec.value or b"")
                for rec in records
                if (rec.partition, rec.headers) == (partition, headers)
            ]
            args = ["-P", "-t", topic, "-p", str(partition), "-K", "\t", "-Z", "-z", compression, "-X", f"acks={acks}"]
            for name, value in headers:
                assert value is not None
                args += ["-H", f"{name}={value.decode()}"]
            kcat(bootstrap, *args, data=b"\n".join(lines) + b"\n")

    def read(self, bootstrap: str, topic: str, partitions: Sequence[int], count: int) -> list[Rec]:
        """It reads one partition or all: those that were not asked for are left out."""
        out = kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-J", "-q")
        read = [_from_kcat(json.loads(line)) for line in out.splitlines()]
        found = [rec for rec in read if rec.partition in partitions]
        assert len(found) == count
        return found


def _from_kcat(said: dict[str, object]) -> Rec:
    def data(name: str) -> bytes | None:
        value = said[name]
        return None if value is None else str(value).encode()

    flat = said.get("headers", [])
    assert isinstance(flat, list)
    values = [None if value is None else str(value).encode() for value in flat[1::2]]
    headers = tuple(zip(map(str, flat[0::2]), values, strict=True))
    numbers = [said[name] for name in ("partition", "ts", "offset")]
    partition, timestamp, offset = (number for number in numbers if isinstance(number, int))
    return Rec(partition, data("key"), data("payload"), headers, timestamp, offset)


def kcat(bootstrap: str, *args: str, data: bytes = b"") -> str:
    if shutil.which("kcat") is None:
        pytest.skip("no kcat on this machine: it is Debian's package kcat")
    ran = subprocess.run(
        ["kcat", "-b", bootstrap, *args], input=data, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode()


CLIENTS: tuple[Client, ...] = (Librdkafka(), KafkaPython(), Aiokafka(), Kcat())
