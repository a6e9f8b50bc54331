"""A task's blobs hold its rows as nodes would store them, by the configs of their topics."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from catena.errors import (
    BatchTooLarge,
    InvalidBatch,
    OutcomeUnknown,
    Rejected,
    StoreUnavailable,
    UnknownPartition,
    UnknownTopic,
)
from catena.formats import wal_blob
from catena.formats.compression import Compression
from catena.formats.record_batch import BatchHeader, check_crc, split_batches
from catena.formats.records import Record, iter_records
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock, SystemEntropy
from catena.source.adopting import stamp_of
from catena.source.writing import TaskWriter, TopicPlan, WritePlan, put_under_new_name
from catena.testing.faults import Fail, Faults, FaultyObjects
from catena.types import Buffers, TopicId
from catena.virtual_log.intents import StoredBlob
from catena.virtual_log.topic_configs import settings_of

NOW_MS = 1_700_000_000_000


class StoppedClock(SystemClock):
    def now_ms(self) -> int:
        return NOW_MS


class Task:
    def __init__(
        self,
        configs: Mapping[str, str] | None = None,
        partitions: int = 3,
        topic: str | None = "orders",
        blob_bytes: int = 1 << 20,
        number: int = 0,
    ) -> None:
        plans = {
            name: TopicPlan(TopicId(digit * 32), partitions, settings_of(configs or {}))
            for name, digit in (("orders", "1"), ("others", "2"))
        }
        self.objects: dict[str, bytes] = {}
        plan = WritePlan("cluster", topic, plans)
        self.writer = TaskWriter(plan, "app", 5, number, self._put, StoppedClock(), blob_bytes)

    def _put(self, chunks: Buffers) -> str:
        key = f"blob {len(self.objects)}"
        self.objects[key] = b"".join(chunks)
        return key

    def write(self, **columns: Any) -> tuple[StoredBlob, ...]:
        self.writer.add(pa.RecordBatch.from_pydict(columns))
        return self.writer.finish()

    def batches(self, blob: StoredBlob) -> dict[tuple[str, int], list[tuple[BatchHeader, memoryview]]]:
        """What its runs lead to."""
        data = self.objects[blob.key]
        wal_blob.check(data)
        found = {}
        for run in blob.runs:
            batches = split_batches(data[run.at : run.at + run.length])
            assert sum(header.count for header, _ in batches) == run.count
            assert max(header.max_timestamp for header, _ in batches) == run.max_timestamp
            sequence = 0
            for header, batch in batches:
                check_crc(batch, header)
                assert (header.producer_id, header.producer_epoch) == (blob.producer_id, blob.producer_epoch)
                assert header.base_sequence == sequence
                sequence += header.count
            found[run.topic_id[0], run.partition] = batches
        return found

    def records(self, blob: StoredBlob) -> dict[tuple[str, int], list[Record]]:
        return {
            place: [record for header, batch in batches for record in iter_records(batch)]
            for place, batches in self.batches(blob).items()
        }


def test_rows_become_records() -> None:
    task = Task()
    headers = pa.array([[{"key": "h", "value": b"1"}], None, []])
    (blob,) = task.write(
        key=pa.array([b"a", None, b"c"]),
        value=pa.array(["x", None, "z"]),
        partition=pa.array([0, 0, 2], pa.int32()),
        timestamp=pa.array([1000_000, None, 3000_000], pa.timestamp("us", "UTC")),
        headers=headers,
        offset=pa.array([7, 8, 9]),
    )
    records = task.records(blob)
    assert list(records) == [("1", 0), ("1", 2)]
    first, second = records["1", 0]
    assert (first.key, first.value, first.timestamp, list(first.headers)) == (b"a", b"x", 1000, [("h", b"1")])
    assert (second.key, second.value, second.timestamp, list(second.headers)) == (None, None, NOW_MS, [])
    assert [record.value for record in records["1", 2]] == [b"z"]
    assert task.writer.topics == {TopicId("1" * 32): "orders"}
    assert (blob.producer_id, blob.producer_epoch) == stamp_of("app", 5, 0, 0)


def test_many_rows_fill_several_blobs_in_order() -> None:
    task = Task(partitions=1, blob_bytes=1000, number=4)
    values = [f"value {number:04d}" for number in range(500)]
    blobs = task.write(value=pa.array(values))
    assert len(blobs) > 4
    found = [record.value for blob in blobs for record in task.records(blob)["1", 0]]
    assert found == [value.encode() for value in values]
    stamps = [(blob.producer_id, blob.producer_epoch) for blob in blobs]
    assert stamps == [stamp_of("app", 5, 4, number) for number in range(len(blobs))]


def test_rows_without_keys_go_to_one_partition_after_the_other() -> None:
    task = Task(partitions=3, blob_bytes=1000, number=1)
    blobs = task.write(value=pa.array(["x" * 90] * 100))
    assert [{run.partition for run in blob.runs} for blob in blobs[:4]] == [{1}, {2}, {0}, {1}]


def test_topics_come_from_a_column() -> None:
    task = Task(topic=None, partitions=1)
    (blob,) = task.write(value=pa.array(["a", "b", "c"]), topic=pa.array(["orders", "others", "orders"]))
    found = {place: [record.value for record in records] for place, records in task.records(blob).items()}
    assert found == {("1", 0): [b"a", b"c"], ("2", 0): [b"b"]}


def test_nothing_is_stored_for_no_rows() -> None:
    task = Task()
    assert task.write(value=pa.array([], pa.string())) == ()
    assert task.writer.topics == {}
    assert task.objects == {}


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"])
def test_the_topics_compression(name: str) -> None:
    task = Task({"compression.type": name}, partitions=1)
    (blob,) = task.write(value=pa.array(["a" * 100] * 50))
    ((header, _),) = task.batches(blob)["1", 0]
    plain = name in ("uncompressed", "producer")
    assert header.compression is (Compression.NONE if plain else Compression[name.upper()])
    assert len(task.records(blob)["1", 0]) == 50


def test_batches_are_no_larger_than_the_topic_takes() -> None:
    task = Task({"max.message.bytes": "1000"}, partitions=1)
    (blob,) = task.write(value=pa.array(["x" * 100] * 100))
    assert max(len(batch) for _, batch in task.batches(blob)["1", 0]) <= 1000
    with pytest.raises(BatchTooLarge, match=r"orders/0: a row takes \d+ bytes, and max.message.bytes is 1000"):
        task.write(value=pa.array(["x" * 2000]))


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_rows_that_no_compression_makes_smaller(name: str) -> None:
    for size in range(1200, 2800, 97):
        task = Task({"max.message.bytes": "20000", "compression.type": name}, partitions=1)
        (blob,) = task.write(value=pa.array([random.Random(size + n).randbytes(size) for n in range(30)]))
        assert max(len(batch) for _, batch in task.batches(blob)["1", 0]) <= 20_000


def test_whose_time_counts() -> None:
    columns = {"value": pa.array(["a"]), "timestamp": pa.array([5_000_000], pa.timestamp("us", "UTC"))}
    task = Task({"message.timestamp.type": "LogAppendTime"}, partitions=1)
    (blob,) = task.write(**columns)
    ((header, _),) = task.batches(blob)["1", 0]
    assert (header.log_append_time, header.max_timestamp) == (True, NOW_MS)
    with pytest.raises(Rejected, match="orders/0: timestamp 5000 is more than 10 ms behind"):
        Task({"message.timestamp.before.max.ms": "10"}, partitions=1).write(**columns)


def test_what_is_refused() -> None:
    value = pa.array(["a"])
    with pytest.raises(UnknownTopic, match="there is no topic 'gone'"):
        Task(topic=None).write(value=value, topic=pa.array(["gone"]))
    with pytest.raises(UnknownPartition):
        Task().write(value=value, partition=pa.array([3], pa.int32()))
    with pytest.raises(InvalidBatch, match="column topic is null"):
        Task(topic=None).write(value=value, topic=pa.array([None], pa.string()))


async def test_a_blob_is_put_again_under_another_name() -> None:
    faults, objects = Faults(), MemoryObjects(SystemClock())
    for error in (OutcomeUnknown("no answer"), StoreUnavailable("down")):
        faults.at("blob put", Fail(error, applied=isinstance(error, OutcomeUnknown)), nth=1 + len(faults.armed))
    store = FaultyObjects(objects, faults)
    key = await put_under_new_name(store, [b"a", b"b"], SystemClock(), SystemEntropy(), pause_s=0)
    assert (await objects.get(key)).data == b"ab"
    assert len([info async for info in objects.list("llog/wal-shared/")]) == 2
    for nth in range(1, 6):
        faults.at("blob put", Fail(StoreUnavailable("down")), nth=nth)
    with pytest.raises(StoreUnavailable, match="could not be stored: down"):
        await asyncio.wait_for(put_under_new_name(store, [b""], SystemClock(), SystemEntropy(), pause_s=0), 10)
