"""A stream's progress is what a real client finds as the group's offsets; if it can't be told, the stream goes on."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

import catena
from catena.cluster.view import Address, NodeRecord, encode_node
from catena.config import load
from catena.errors import ConfigError, StoreUnavailable
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.meta.memory import MemoryMeta
from catena.runtime import SystemClock, SystemEntropy
from catena.source.group_commits import GroupCommits, ask
from catena.source.offsets import StreamOffsets, TopicOffsets
from catena.source.options import parse_batch, parse_stream
from catena.stores import open_stores
from catena.virtual_log.topics import decode_topic
from catena.wire.messages.find_coordinator import FindCoordinatorRequest
from catena.wire.reader import WireError
from tests.clients.conftest import running
from tests.clients.nodes import Cluster

GROUP = "a stream"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    """Two nodes, one of which coordinates the group."""
    yield from running(Cluster(2, folder, {}))


def committed(cluster: Cluster, topic: str, *partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition(topic, number) for number in partitions], timeout=20)
        return [each.offset for each in found]
    finally:
        consumer.close()


@asynccontextmanager
async def stores(folder: Path) -> AsyncIterator[MetaStore]:
    async with open_stores(load(data=str(folder)), SystemClock(), SystemEntropy()) as opened:
        yield opened.meta


async def _commit(folder: Path, topic: str, offsets: dict[int, int]) -> bool:
    async with stores(folder) as meta:
        record = await meta.get(keys.topic(topic))
        assert record is not None
        topics = {topic: TopicOffsets(decode_topic(record).topic_id, offsets)}
        return await GroupCommits(meta, GROUP).commit(StreamOffsets(topics))


async def _create(folder: Path) -> None:
    async with catena.open(folder) as log:
        await log.create_topic("orders", 3)
        for partition in range(3):
            await log.append_batch("orders", [f"{number}" for number in range(10)], partition=partition)


def test_a_real_client_finds_the_progress(cluster: Cluster, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_create(folder / "data"))
    assert asyncio.run(_commit(folder / "data", "orders", {0: 3, 1: 7}))
    assert committed(cluster, "orders", 0, 1, 2) == [3, 7, OFFSET_INVALID]
    assert asyncio.run(_commit(folder / "data", "orders", {0: 10, 2: 1}))
    assert committed(cluster, "orders", 0, 1, 2) == [10, 7, 1]
    assert not caplog.records


async def test_without_a_node_it_warns_once_and_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    commits = GroupCommits(MemoryMeta(SystemClock()), GROUP)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not await commits.commit(StreamOffsets({}))
    (warning,) = caplog.records
    assert "could not be committed for group a stream, and goes on without: no node is alive" in warning.getMessage()


async def test_nodes_that_do_not_answer_are_passed_over() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meta = MemoryMeta(SystemClock())
    listeners = {"main": Address("127.0.0.1", port)}
    node = NodeRecord(node_id=1, incarnation="x", started_at_ms=0, listeners=listeners)
    await meta.put(keys.node(1), encode_node(node))
    assert not await GroupCommits(meta, GROUP).commit(StreamOffsets({}))


async def test_a_node_that_hangs_up_or_talks_nonsense() -> None:
    answers = [b"", b"\xff\xff\xff\xff"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(answers.pop(0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        with pytest.raises(StoreUnavailable, match="hung up"):
            await ask(address, FindCoordinatorRequest(coordinator_keys=["g"]))
        with pytest.raises(WireError, match="answers with -1 bytes"):
            await ask(address, FindCoordinatorRequest(coordinator_keys=["g"]))
    finally:
        server.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"commitGroup": ""}, "can't be the id of a group"),
        ({"commitGroup": "g", "node": "http://h:1"}, "needs the stores"),
    ],
)
def test_options(options: dict[str, str], told: str) -> None:
    assert parse_stream({"subscribe": "a", "commitGroup": "g"}).commit_group == "g"
    with pytest.raises(ConfigError, match=told):
        parse_stream({"subscribe": "a", **options})
    with pytest.raises(ConfigError, match="only a stream makes progress"):
        parse_batch({"subscribe": "a", "commitGroup": "g"})
