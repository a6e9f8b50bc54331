"""What a node that serves tells of itself, after clients have used it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from catena.config import load
from catena.metrics.figures import NodeFigures
from catena.metrics.others import OTHERS
from catena.runtime import Disk
from catena.serve import ServingNode, serve
from tests.broker.world import LeapingClock

TOKEN = "a-token-that-nobody-guesses"
RECORDS = 100


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    disk = Disk(1)
    yield disk
    disk.close()


def settings(folder: Path, **more: Any) -> Any:
    return load(
        data=str(folder),
        **{
            "kafka": {"listeners": {"main": {"port": 0}}},
            "node": {"rack": "a"},
            "http": {"token": TOKEN},
            "metrics": {"look_every_ms": 1_000, "scenario": "smoke"},
            **more,
        },
    )


async def get(node: ServingNode, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.http.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.split()[1] == b"200"
    return body


def use(servers: str) -> None:
    """Records in, records out, and a group that is half-way."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        producer.produce("t", f"{number}".encode(), partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False, "client.rack": "b"}
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    seen = 0
    while seen < RECORDS:
        seen += sum(message.error() is None for message in consumer.consume(RECORDS, 10))
    consumer.commit(offsets=[TopicPartition("t", 0, 40)], asynchronous=False)
    consumer.close()


async def test_what_clients_did_is_told(tmp_path: Path, disk: Disk) -> None:
    async with serve(settings(tmp_path)) as node:
        await disk.run(use, str(node.address()))
        text = await get(node, "/metrics")
        told = msgspec.json.decode(text, type=NodeFigures)
        assert (told.node.state, told.node.rack, told.node.scenario) == ("ready", "a", "smoke")
        assert (told.commit.records, told.fetched.records) == (RECORDS, RECORDS)
        assert told.commit.bytes == told.writer.blob_bytes.sum == told.fetched.bytes
        assert told.queue.held_bytes == told.commit.queued_bytes == 0
        assert told.kafka.apis["Produce"].requests == sum(told.kafka.apis["Produce"].seconds.buckets) > 0
        assert told.kafka.apis["OffsetCommit"].errors == {}
        assert told.kafka.fetch_zones.other == told.kafka.apis["Fetch"].requests
        assert told.object_store["put"].requests >= sum(told.writer.blobs.values())
        assert told.meta_store["transact"].requests >= told.commit.commit_seconds.count
        assert told.reads.caches["tail"].hits > 0
        assert told.stored is not None
        assert told.stored.objects["wal"] == sum(told.writer.blobs.values())
        assert told.cost.requests_usd > told.cost.scans_usd > 0
        assert told.topics is not None
        assert (told.topics["t"].records, told.topics["t"].links) == (RECORDS, 1)
        assert told.topics["t"].bytes == told.commit.bytes
        assert told.groups is not None
        assert (told.groups.by_name["g"].lag, told.groups.coordinated) == (RECORDS - 40, 1)
        assert told.process.cpu_seconds > 0
        for secret in (TOKEN, str(tmp_path)):
            assert secret.encode() not in text


async def test_prometheus_reads_the_same(tmp_path: Path, disk: Disk) -> None:
    async with serve(settings(tmp_path)) as node:
        await disk.run(use, str(node.address()))
        families = list(text_string_to_metric_families((await get(node, "/metrics/prometheus")).decode()))
        found = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
        assert found["catena_produced_records_total",] == RECORDS
        assert found["catena_topic_records", "t"] == RECORDS
        assert found["catena_group_lag_records", "g"] == RECORDS - 40


async def test_only_the_first_node_lists_the_bucket(tmp_path: Path) -> None:
    async with serve(settings(tmp_path)) as first, serve(settings(tmp_path)) as second:
        while len(first.membership.view.nodes) < 2:
            await first.membership.changed(first.membership.view.revision)
        told = [json.loads(await get(node, "/metrics")) for node in (first, second)]
        assert [each["stored"] is not None for each in told] == [True, False]
        assert [each["cluster"]["nodes"] for each in told] == [2, 2]
    async with serve(settings(tmp_path, metrics={"scan_every_ms": 0})) as node:
        assert json.loads(await get(node, "/metrics"))["stored"] is None


async def test_a_node_that_nobody_asks_reads_nothing_for_it(tmp_path: Path) -> None:
    async with serve(settings(tmp_path)) as node:
        first = json.loads(await get(node, "/metrics"))
        assert first["object_store"]["list"]["requests"] >= 1
        second = json.loads(await get(node, "/metrics"))
        assert second["object_store"]["list"]["requests"] == first["object_store"]["list"]["requests"]


async def test_series_do_not_grow_with_partitions(tmp_path: Path, disk: Disk) -> None:
    clock = LeapingClock()
    async with serve(settings(tmp_path, metrics={"topics": 3, "look_every_ms": 1_000}), clock) as node:
        admin = AdminClient({"bootstrap.servers": str(node.address())})

        def make(name: str, partitions: int) -> None:
            for made in admin.create_topics([NewTopic(name, partitions)]).values():
                made.result(30)

        for number in range(3):
            await disk.run(make, f"t{number}", 1)
        await node.view.refresh()
        few = await series(node)
        for number in range(3, 10):
            await disk.run(make, f"t{number}", 1_000)
        await node.view.refresh()
        clock.leap(2)
        while OTHERS not in json.loads(await get(node, "/metrics"))["topics"]:
            pass  # it is read meanwhile
        many = await series(node)
        assert json.loads(await get(node, "/metrics"))["cluster"]["partitions"] == 7_003
        assert {name for name in many - few if "topic" not in name} == set()
        assert len(many) <= len(few) + 8, "one line more of each: all other topics"


async def series(node: ServingNode) -> set[str]:
    """Without those of HTTP itself, and of errors, which come with what is asked."""
    lines = (await get(node, "/metrics/prometheus")).decode().splitlines()
    return {line.rpartition(" ")[0] for line in lines if line[0] != "#" and not line.startswith("catena_http_")}
