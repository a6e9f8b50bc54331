"""The same plans through a real node as from its stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from catena.config import load
from catena.errors import ConfigError, DataLoss, Rejected, StoreRefused, StoreUnavailable
from catena.objects.linked import LinkedObjects
from catena.runtime import Disk, SystemClock
from catena.serve import serve
from catena.source import node_planner
from catena.source.node_planner import NodePlanner
from catena.source.reading import fetch_extents
from tests.source.world import World, fill, open_world, tier

T = TypeVar("T")

TOKEN = "a token that nobody guesses"


async def ask(planner: NodePlanner, question: Callable[[NodePlanner], Awaitable[T]]) -> T:
    """On a thread: its calls block, and the node is in this very process."""

    async def answer() -> T:
        return await question(planner)

    disk = Disk(1)
    try:
        return await disk.run(lambda: asyncio.run(answer()))
    finally:
        disk.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    await fill(tmp_path, 2)
    await tier(tmp_path)
    await fill(tmp_path, 2, start=50)
    async with open_world(tmp_path) as opened:
        yield opened


@pytest.fixture
async def address(world: World, tmp_path: Path) -> AsyncIterator[str]:
    listeners = {"listeners": {"main": {"port": 0}}}
    async with serve(load(data=str(tmp_path), http={"token": TOKEN}, kafka=listeners)) as node:
        yield f"http://127.0.0.1:{node.http.port}"


def query(address: str, is_stream: bool = False, token: str = TOKEN, **options: str) -> NodePlanner:
    given = {"subscribe": "orders", "node": address, "TOKEN": token, **options}
    return NodePlanner(address, token, given, is_stream, SystemClock())


async def test_batches_with_links_that_can_be_read(world: World, address: str) -> None:
    linked = await ask(query(address), lambda planner: planner.plan_batch())
    splits = await world.batch(subscribe="orders").plan_batch()
    assert [each.split for each in linked] == splits
    for split, links in linked:
        assert links.keys() == {extent.key for extent in split.extents}
        objects = LinkedObjects(links)
        assert await fetch_extents(objects, split.extents) == await fetch_extents(world.objects, split.extents)
        await objects.close()


async def test_streams(world: World, address: str) -> None:
    planner, direct = query(address, True), world.stream(subscribe="orders")
    stream = query(address, True, startingOffsets="earliest")
    start = await ask(stream, lambda planner: planner.initial_offsets())
    assert start == await world.stream(subscribe="orders", startingOffsets="earliest").initial_offsets()
    assert await ask(planner, lambda planner: planner.tails()) == await direct.tails()
    latest = await ask(planner, lambda planner: planner.latest_offsets(start, 20))
    assert latest == await direct.latest_offsets(start, 20)
    linked = await ask(planner, lambda planner: planner.plan_stream(start, latest.end))
    assert [each.split for each in linked] == await direct.plan_stream(start, latest.end)


async def test_errors_are_those_of_the_stores(address: str) -> None:
    beyond = '{"orders": {"0": 999, "1": 0}}'
    with pytest.raises(DataLoss, match="999"):
        await ask(query(address, startingOffsets=beyond), lambda planner: planner.plan_batch())
    with pytest.raises(Rejected, match="there is no topic 'none'"):
        await ask(query(address, subscribe="none"), lambda planner: planner.plan_batch())
    with pytest.raises(ConfigError, match="option token: reads are planned for those who send the token"):
        await ask(query(address, token="another token, as long"), lambda planner: planner.plan_batch())


async def test_losses_that_are_no_errors_are_warnings_here(address: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = query(address, startingOffsets='{"orders": {"0": 999, "1": 0}}', failOnDataLoss="false")
    assert {each.split.partition for each in await ask(asked, lambda planner: planner.plan_batch())} == {1}
    assert "goes on without what is lost: " in caplog.text


async def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_planner, "PAUSES_S", (0.001, 0.001))
    with pytest.raises(StoreUnavailable, match=r"the node at http://127.0.0.1:1 does not answer"):
        await query("http://127.0.0.1:1").plan_batch()


async def test_somebody_else_there(address: str) -> None:
    async def serve_nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_server(serve_nonsense, "127.0.0.1", 0)
    async with server:
        other = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(StoreRefused, match="does not answer as a node does"):
            await ask(query(other), lambda planner: planner.plan_batch())


def test_bad_addresses_and_tokens() -> None:
    for bad in ("localhost:80", "ftp://a", "http://", "http://a:80x", "http://[", "http://a/?b=c"):
        with pytest.raises(ConfigError, match="option node is the address of a node"):
            query(bad)
    with pytest.raises(ConfigError, match="option node: no credentials in the address"):
        query("http://me:secret@host")
    with pytest.raises(ConfigError, match="option token is needed"):
        query("http://localhost", token=" \n")
    with pytest.raises(ConfigError, match="option token, or CATENA_TOKEN, has characters that no token has") as caught:
        query("http://localhost", token="secret\nsecret")
    assert "secret" not in str(caught.value)
    assert query("http://localhost:80/below/", token=f"{TOKEN}\n")._absolute("/v1") == "http://localhost:80/below/v1"
