"""The meta store is restored from a backup, and the bucket knows more: nothing is written before somebody has decided.

On a real SQLite and a real PostgreSQL, from the Python API down, and in a node that serves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from catena.cli.checks import check_stores
from catena.cli.older_meta import accept, look
from catena.config import Settings, load
from catena.embedded import Log, open_log
from catena.errors import MetaBehind, UnknownTopic
from catena.meta.base import Record
from catena.runtime import SystemClock, SystemEntropy
from catena.serve import serve
from catena.stores import open_stores
from catena.testing.postgres_server import PostgresServer
from catena.virtual_log.incarnation import check_incarnation, raise_incarnation
from tests.backups import Backups, PostgresBackups, SqliteBackups
from tests.test_serve import get

TOPIC = "t"
KEPT = [f"kept {number}" for number in range(10)]
LOST = [f"lost {number}" for number in range(20)]
NEW = [f"new {number}" for number in range(15)]

WRITES: dict[str, Callable[[Log], Awaitable[object]]] = {
    "append": lambda log: log.append(TOPIC, "more"),
    "append to a partition that nobody wrote to": lambda log: log.append(TOPIC, "more", partition=1),
    "create": lambda log: log.create_topic("another"),
    "delete": lambda log: log.delete_topic(TOPIC),
    "seal": lambda log: log.seal(TOPIC),
    "trim": lambda log: log.trim(TOPIC, 5),
    "reconfigure": lambda log: log.reconfigure(TOPIC, kind="memory"),
}


class Site:
    """Stores, with backups of the one of them."""

    def __init__(self, settings: Settings, backups: Backups) -> None:
        self.settings = settings
        self.backups = backups

    async def write(self, values: list[str]) -> list[int]:
        async with open_log(self.settings) as log:
            return [await log.append(TOPIC, value) for value in values]

    async def read(self) -> list[tuple[int, bytes | None]]:
        """As a process does that has just started."""
        async with open_log(self.settings) as log:
            return [(record.offset, record.value) async for record in log.read(TOPIC)]

    async def blobs(self) -> list[str]:
        async with open_stores(self.settings, SystemClock(), SystemEntropy()) as stores:
            return [info.key async for info in stores.objects.list("")]

    async def records(self) -> list[Record]:
        async with open_stores(self.settings, SystemClock(), SystemEntropy()) as stores:
            return await stores.meta.scan("", "~")

    async def lose(self) -> None:
        """Write, back up, write more, restore."""
        async with open_log(self.settings) as log:
            await log.create_topic(TOPIC, 2)
        await self.write(KEPT)
        await self.backups.take()
        await self.write(LOST)
        async with open_log(self.settings) as log:
            await log.create_topic("later")
        await self.backups.restore()


def placed(values: list[str]) -> list[tuple[int, bytes | None]]:
    return [(offset, value.encode()) for offset, value in enumerate(values)]


@pytest.fixture(params=["sqlite", "postgres"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    if request.param == "sqlite":
        yield Site(Settings(data=str(tmp_path / "log")), SqliteBackups(tmp_path / "log" / "meta.db"))
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"restored_{SystemEntropy().hex_id()}"
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(f"CREATE DATABASE {name}")
    dsn = server.dsn.replace("/postgres?", f"/{name}?")
    yield Site(Settings(data=str(tmp_path / "log"), meta=dsn), PostgresBackups(dsn))
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


async def test_a_backup_of_the_end_is_as_good_as_what_it_was_made_of(site: Site) -> None:
    async with open_log(site.settings) as log:
        await log.create_topic(TOPIC)
    await site.write(KEPT)
    await site.backups.take()
    await site.backups.restore()
    assert await site.write(NEW) == list(range(len(KEPT), len(KEPT + NEW)))
    assert await site.read() == placed(KEPT + NEW)


async def test_what_meta_knows_is_read_and_nothing_is_written(site: Site) -> None:
    await site.lose()
    assert await site.read() == placed(KEPT)
    blobs, records = await site.blobs(), await site.records()
    async with open_log(site.settings) as log:
        assert log.node.incarnation.read_only is not None
        assert await log.tail(TOPIC) == len(KEPT)
        for name, write in WRITES.items():
            with pytest.raises(MetaBehind, match="the meta store was set back"):
                await write(log)
            assert await log.tail(TOPIC) == len(KEPT), name
        with pytest.raises(UnknownTopic):
            await log.topic("later")
    assert await site.blobs() == blobs, "no blob was uploaded that nothing can refer to"
    assert await site.records() == records


async def test_a_vacuum_is_refused(site: Site) -> None:
    await site.lose()
    clock = SystemClock()
    async with open_stores(site.settings, clock, SystemEntropy()) as stores:
        with pytest.raises(MetaBehind):
            await check_incarnation(stores.meta, stores.objects)
        with pytest.raises(MetaBehind):
            await raise_incarnation(stores.meta, stores.objects, clock)


async def test_a_vacuum_is_refused_that_began_before_the_restore(site: Site) -> None:
    async with open_log(site.settings) as log:
        await log.create_topic(TOPIC, 2)
    await site.backups.take()
    await site.write(LOST)
    clock = SystemClock()
    async with open_stores(site.settings, clock, SystemEntropy()) as stores:
        before = await check_incarnation(stores.meta, stores.objects)
        await site.backups.restore()
        with pytest.raises(MetaBehind):
            await raise_incarnation(stores.meta, stores.objects, clock, before)
        await accept(site.settings)
        with pytest.raises(MetaBehind, match="accepted while this process ran"):
            await raise_incarnation(stores.meta, stores.objects, clock, before)


async def test_the_doctor_says_what_to_do(site: Site) -> None:
    await site.lose()
    found = [finding async for finding in check_stores(site.settings, SystemClock(), SystemEntropy())]
    assert [finding.status for finding in found] == ["ok"] * (len(found) - 1) + ["fail"]
    assert (found[-1].check, "older than the object store" in found[-1].found) == ("history", True)
    assert "restore a newer backup" in found[-1].advice
    assert "`catena doctor --accept-older-meta`" in found[-1].advice


async def test_a_newer_backup_puts_it_right(site: Site) -> None:
    async with open_log(site.settings) as log:
        await log.create_topic(TOPIC)
    await site.write(KEPT)
    await site.backups.take()
    await site.write(NEW)
    await site.backups.take()
    await site.backups.restore(0)
    with pytest.raises(MetaBehind):
        await site.write(["x"])
    await site.backups.restore(1)
    assert await site.write(["last"]) == [len(KEPT + NEW)]


async def test_once_it_is_accepted_no_offset_is_there_twice(site: Site) -> None:
    await site.lose()
    lost_blobs = await site.blobs()
    assert (await look(site.settings)).is_behind
    await accept(site.settings)
    assert not (await look(site.settings)).is_behind
    assert await site.read() == placed(KEPT)
    assert await site.write(NEW) == list(range(len(KEPT), len(KEPT + NEW)))
    assert await site.read() == placed(KEPT + NEW)
    assert [blob for blob in lost_blobs if blob not in await site.blobs()] == []
    # The backup is as old as it was.
    await site.backups.restore()
    with pytest.raises(MetaBehind):
        await site.write(["x"])


async def test_a_node_serves_what_it_knows_and_is_not_ready(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.lose()
    async with serve(serving(site)) as node:
        status, body = await get(node.http.port, "/ready")
        assert (status, body["state"]) == (503, "read-only")
        assert "the meta store was set back" in body["reason"]
        assert not node.is_ready
        assert (await get(node.http.port, "/health"))[0] == 200
        assert node.membership.alive, "others see it, and clients find it"
        log = await node.node.log(TOPIC, 0)
        assert await log.tail() == len(KEPT)
    assert "read-only" in caplog.text
    await accept(site.settings)
    async with serve(serving(site)) as node:
        assert (await get(node.http.port, "/ready"))[0] == 200


async def test_a_node_that_runs_meanwhile_stops_writing(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async with open_log(site.settings) as log:
        await log.create_topic(TOPIC)
    await site.backups.take()
    async with serve(serving(site)) as node:
        assert node.is_ready
        await site.backups.restore()
        await node.node.incarnation.tick()
        assert (await get(node.http.port, "/ready"))[1]["state"] == "read-only"
        with pytest.raises(MetaBehind):
            await node.node.topics.create("another")
    assert [record.levelname for record in caplog.records if "read-only" in record.message] == ["ERROR"]


async def test_a_node_raises_the_number_when_it_starts_and_when_it_ends(site: Site) -> None:
    async def number() -> int:
        return (await look(site.settings)).in_meta.number

    async with serve(serving(site)) as node:
        assert await number() == 1
        await node.node.topics.create(TOPIC)
    assert await number() == 2
    async with serve(serving(site)):
        pass
    assert await number() == 3
    async with open_log(site.settings) as log:
        await log.topics()
    assert await number() == 3, "who only reads leaves it alone"


def serving(site: Site) -> Settings:
    listeners: dict[str, Any] = {"listeners": {"main": {"port": 0}}}
    return load(data=site.settings.data, meta=site.settings.meta, kafka=listeners)
