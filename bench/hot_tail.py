"""From the ack in one process to the delivery in another: a writing node, a reading node, a long poll at the tail.

Embedded default, fsync on. Records of 100 bytes are due at a fixed rate, whatever became of those before. One client
produces at the node that writes and another one polls the node that reads; both are in one process, and so go by one
clock. What is delivered may be here before its ack is: then the time between the two is negative.

With a tail folder in common, and without: then the reader learns of news by watching the meta store, and reads the
index and the object. BENCH_SECONDS is how long each is held (10 unless told), BENCH_RATE records in a second (200).
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, at_most, percentile
from bench.kafka_clients import create_topic, setting
from bench.kafka_wire import Poller, parse_response, request_frame
from bench.serving import catena_node
from catena.formats.records import build_batch, iter_records
from catena.wire.apis import APIS
from catena.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from catena.wire.requests import SIZE_BYTES

PRODUCE = APIS[0]
PRODUCE_VERSION = 9
TOPIC = "hot"
VALUE_BYTES = 100
WARM_UP = 100
WAIT_MS = 5000
P50_MS, P99_MS = 1.0, 5.0


class Found(NamedTuple):
    """In milliseconds, by record."""

    produced: list[float]
    """From when it was due to its ack."""
    delivered: list[float]
    """From its ack to its delivery."""
    whole: list[float]
    """From when it was due to its delivery."""
    meta_calls: int
    objects_read: int
    """By the reading node, while it delivered all of them."""


def run(folder: Path) -> list[Figure]:
    seconds, rate = setting("BENCH_SECONDS", 10), setting("BENCH_RATE", 200)
    figures: list[Figure] = []
    for name, shares in (("with the folder", True), ("without it", False)):
        found = on_nodes(folder / name.replace(" ", "-"), shares, seconds, rate)
        figures += figures_of(name, found, shares)
    return figures


def figures_of(name: str, found: Found, has_aim: bool) -> Iterator[Figure]:
    for what, values in (("ack to delivery", found.delivered), ("produce", found.produced), ("whole", found.whole)):
        for percent, aim in ((50, P50_MS), (99, P99_MS)):
            label, value = f"{name}: {what}, p{percent}", percentile(values, percent)
            is_aimed = has_aim and what == "ack to delivery"
            yield at_most(label, value, aim, "ms") if is_aimed else Figure(label, value, "ms")
    count = len(found.whole) + WARM_UP
    yield Figure(f"{name}: calls of the meta store by the reader, for 1,000 records", found.meta_calls * 1000 / count)
    yield Figure(f"{name}: objects read by it, for 1,000 records", found.objects_read * 1000 / count)


def on_nodes(folder: Path, shares: bool, seconds: float, rate: float) -> Found:
    tails = {"CATENA_DISKLESS__TAIL_FOLDER": str(folder / "tails")} if shares else {}
    # What metrics ask the stores is not what is measured.
    reading = {**tails, "CATENA_NODE__ROLES": "read", "CATENA_METRICS__LOOK_EVERY_MS": "3600000"}
    with (
        catena_node(folder, {**tails, "CATENA_NODE__ROLES": "write"}) as writer,
        catena_node(folder, reading) as reader,
    ):
        create_topic(writer.address, TOPIC)
        counters(reader.http)
        meta_before, objects_before = counters(reader.http)
        produced, delivered, whole = asyncio.run(measure(writer.address, reader.address, int(seconds * rate), rate))
        meta_after, objects_after = counters(reader.http)
    return Found(produced, delivered, whole, meta_after - meta_before, objects_after - objects_before)


async def measure(writer: str, reader: str, count: int, rate: float) -> tuple[list[float], list[float], list[float]]:
    count += WARM_UP
    acked, came = [0] * count, [0] * count
    polling = await Poller.connect(reader)
    consumer = asyncio.ensure_future(deliver(polling, came))
    connection = await asyncio.open_connection(*writer.rsplit(":", 1))
    acks = asyncio.ensure_future(take_acks(connection[0], acked))
    start = time.monotonic_ns() + 200_000_000
    due = [start + int(number * 1e9 / rate) for number in range(count)]
    for number, at in enumerate(due):
        await asyncio.sleep(max(0.0, (at - time.monotonic_ns()) / 1e9))
        connection[1].write(produce_frame(number))
    await asyncio.gather(consumer, acks)
    polling.close()
    connection[1].close()
    counted = range(WARM_UP, count)
    return (
        [(acked[number] - due[number]) / 1e6 for number in counted],
        [(came[number] - acked[number]) / 1e6 for number in counted],
        [(came[number] - due[number]) / 1e6 for number in counted],
    )


async def deliver(polling: Poller, came: list[int]) -> None:
    offset = 0
    while offset < len(came):
        answer = await polling.poll(TOPIC, 0, WAIT_MS, offset)
        now = time.monotonic_ns()
        (part,) = answer.responses[0].partitions
        assert not part.error_code, part.error_code
        data = b"".join(bytes(each) for each in part.records or ())
        at = 0
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            base = int.from_bytes(data[at : at + 8], "big")
            for record in iter_records(data[at:end], base):
                came[int.from_bytes((record.value or b"")[:8], "big")] = now
                offset = record.offset + 1
            at = end


async def take_acks(answers: asyncio.StreamReader, acked: list[int]) -> None:
    for number in range(len(acked)):
        size = int.from_bytes(await answers.readexactly(SIZE_BYTES), "big")
        frame = memoryview(await answers.readexactly(size))
        acked[number] = time.monotonic_ns()
        answer = parse_response(PRODUCE, PRODUCE_VERSION, frame)
        assert isinstance(answer, ProduceResponse)
        assert not answer.responses[0].partition_responses[0].error_code


def produce_frame(number: int) -> bytes:
    value = number.to_bytes(8, "big") + bytes(VALUE_BYTES - 8)
    part = PartitionProduceData(index=0, records=[build_batch([(None, value, (), 0)])])
    topic = TopicProduceData(name=TOPIC, partition_data=[part])
    body = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    return request_frame(PRODUCE, PRODUCE_VERSION, body)


def counters(http: str) -> tuple[int, int]:
    """Calls of the meta store so far, and objects or parts of them that were read."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=30) as answer:
        found = json.load(answer)
    meta = sum(each["requests"] for each in found["meta_store"].values())
    return meta, sum(found["object_store"][kind]["requests"] for kind in ("get", "range_get"))
