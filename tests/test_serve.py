"""A node from its start to its end, as its ports show it."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from catena.config import Settings, load
from catena.errors import ConfigError
from catena.runtime import Disk
from catena.serve import new_event_loop, serve


def settings(folder: Path | None = None, **more: Any) -> Settings:
    """In memory, or in a folder that nodes share."""
    stores: dict[str, Any] = {"meta": "memory:", "objects": "memory:"} if folder is None else {"data": str(folder)}
    kafka = {"listeners": {"main": {"port": 0}, "other": {"port": 0, "advertised_host": "example.com"}}}
    return load(**stores, **{"kafka": kafka, **more})


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def test_is_ready_once_it_serves() -> None:
    async with serve(settings(node={"rack": "a", "id": 7})) as node:
        assert node.membership.view.get(7) == node.membership.record
        assert node.membership.record.rack == "a"
        assert node.address("other").host == "example.com"
        assert node.address("other").port != node.address("main").port
        health, about = await get(node.http.port, "/health")
        assert (health, about["status"], about["state"], about["node_id"], about["cluster_id"]) == (
            200,
            "ok",
            "ready",
            7,
            node.node.cluster_id,
        )
        assert (about["broker_id"], about["host"], about["port"]) == ("7", "127.0.0.1", node.http.port)
        assert (await get(node.http.port, "/ready"))[0] == 200
        assert (await get(node.http.port, "/metrics"))[1]["node"]["id"] == 7
    assert not node.is_ready
    with pytest.raises(ConnectionError):
        await get(node.http.port, "/ready")
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", node.address().port)


async def test_is_not_ready_while_it_starts(tmp_path: Path) -> None:
    """The second waits for an id that the first holds; it lives, and then it says why it does not start."""
    port = free_port()
    async with serve(settings(tmp_path, node={"id": 1})):
        # Twice its time-to-live it waits; the first one holds its own for longer than a busy machine stands still.
        hasty = {"session_ttl_ms": 500, "refresh_ms": 100}
        second = serve(settings(tmp_path, node={"id": 1}, cluster=hasty, http={"port": port}))
        starts = asyncio.ensure_future(second.__aenter__())
        while True:
            try:
                assert (await get(port, "/ready")) == (
                    503,
                    {"state": "starting", "node_id": None, "cluster_id": None},
                )
                break
            except ConnectionError:
                await asyncio.sleep(0)
        assert (await get(port, "/health"))[0] == 200
        with pytest.raises(ConfigError, match="1 is held by a node that lives"):
            await starts
    with pytest.raises(ConnectionError):
        await get(port, "/health")


async def test_says_that_it_drains() -> None:
    disk = Disk(1)
    async with AsyncExitStack() as running:
        node = await running.enter_async_context(serve(settings()))
        addresses = {"bootstrap.servers": str(node.address())}
        consumer = Consumer({**addresses, "group.id": "g", "enable.auto.commit": False, "fetch.wait.max.ms": 2_000})
        await disk.run(produce_and_consume, addresses, consumer)
        ending = asyncio.ensure_future(running.aclose())
        await asyncio.sleep(0)
        ready = await get(node.http.port, "/ready")
        assert (ready[0], ready[1]["state"]) == (503, "draining")
        assert (await get(node.http.port, "/health"))[0] == 200
        await ending
    await disk.run(consumer.close)
    disk.close()


@pytest.mark.parametrize("what", ["kafka", "http"])
async def test_a_port_that_is_taken_is_named(what: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = {"kafka": {"listeners": {"main": {"port": port}}}} if what == "kafka" else {"http": {"port": port}}
        with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1:{port}: .*in use"):
            async with serve(settings(**ports)):
                raise AssertionError("it must not start")


def test_runs_on_the_loop_that_was_chosen() -> None:
    loop = new_event_loop()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()


def produce_and_consume(addresses: dict[str, Any], consumer: Consumer) -> None:
    """One record, so that the fetch after it is a long one."""
    producer = Producer(addresses)
    producer.produce("t", b"one")
    assert producer.flush(30) == 0
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"one"
