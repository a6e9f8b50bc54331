"""What several partitions of a request have in one blob is downloaded once, on the stores that people run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from catena.config import Settings, load
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.loglets import together
from catena.loglets.base import Entry
from catena.node import Node
from catena.objects.counted import CountedObjects
from catena.rest.consume import AT_ONCE
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_stores
from catena.testing.postgres_server import PostgresServer
from catena.testing.s3_server import SeaweedServer
from catena.virtual_log.topic_view import TopicView
from tests.clients.conftest import three_node_settings
from tests.rest.test_consume import Reader


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a meta store may take longer to answer than downloads are held back for."""
    monkeypatch.setattr(together, "HOLD_MAX_S", 60.0)


@asynccontextmanager
async def reader_on(settings: Settings) -> AsyncIterator[tuple[Reader, CountedObjects]]:
    """A node with connections of its own, which has nothing in memory of what others write."""
    clock, entropy = SystemClock(), SystemEntropy()
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(open_stores(settings, clock, entropy))
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
        opened.push_async_callback(node.close)
        view = TopicView(stores.meta, clock)
        await view.start()
        opened.push_async_callback(view.close)
        reader = Reader(node, view)
        opened.push_async_callback(reader.tasks.close)
        yield reader, stores.requests


def entry(value: bytes) -> Entry:
    data = build_batch([(None, value, (), 1)])
    return Entry(parse_header(data), data)


async def check_got_once(settings: Settings) -> None:
    async with reader_on(settings) as (writer, written), reader_on(settings) as (reader, got):
        await writer.node.topics.create("t", AT_ONCE)
        logs = [await writer.node.log("t", number) for number in range(AT_ONCE)]
        await asyncio.gather(*(log.append(entry(b"first")) for log in logs))
        puts = written.snapshot()["put"].requests
        await asyncio.gather(*(log.append(entry(b"%d" % number)) for number, log in enumerate(logs)))
        assert written.snapshot()["put"].requests == puts + 1, "all lie in one blob"
        before = got.snapshot()["range_get"].requests
        for _ in range(2):  # the second time it is kept
            results = await reader.consume(*[1] * AT_ONCE)
            assert [result["records"] for result in results] == [[str(number)] for number in range(AT_ONCE)]
            assert got.snapshot()["range_get"].requests == before + 1


async def test_sqlite_and_a_folder(tmp_path: Path) -> None:
    await check_got_once(load(meta=f"sqlite:{tmp_path / 'meta.db'}", objects=f"folder:{tmp_path / 'objects'}"))


@pytest.fixture
def servers(postgres_server: PostgresServer, s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    stores = three_node_settings("shared_blobs", postgres_server, s3_server)
    for name, value in stores.items():
        monkeypatch.setenv(name, value)
    return load(meta=stores["CATENA_META"], objects=stores["CATENA_OBJECTS"])


async def test_postgres_and_s3(servers: Settings) -> None:
    await check_got_once(servers)
