"""Nodes that share a tail folder, from the virtual log down: what a follower asks of the stores, and whom it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from catena.config import Settings
from catena.loglets.diskless import tail_sharing
from catena.loglets.diskless.loglet import DisklessSettings
from catena.meta import keys
from catena.meta.memory import MemoryMeta
from catena.node import Node
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.loglet import EVERYTHING, PATIENCE_S, make_entry, values_of
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects
from catena.virtual_log import log as virtual_log
from catena.virtual_log.incarnation import accept_older_meta, raise_incarnation

TOPIC = "t"


class Host:
    def __init__(self, folder: Path, opened: AsyncExitStack) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.meta = MemoryMeta(self.clock)
        self.objects = MemoryObjects(self.clock)
        self._opened = opened

    async def node(self) -> tuple[Node, Faults]:
        faults = Faults()
        settings = Settings(diskless=DisklessSettings(tail_folder=str(self.folder), tail_ring_bytes=1 << 20))
        meta, objects = FaultyMeta(self.meta, faults), FaultyObjects(self.objects, faults)
        node = await Node.start(settings, meta, objects, self.clock, SystemEntropy())
        self._opened.push_async_callback(node.close)
        return node, faults


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with AsyncExitStack() as opened:
        yield Host(tmp_path / "tails", opened)


async def test_a_follower_asks_the_stores_for_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first commit on that it has heard of. Watches of this store are faster than the folder, and lose all
    the same."""
    monkeypatch.setattr(virtual_log, "MAX_AGE_S", 1000.0)
    monkeypatch.setattr(tail_sharing, "TRUST_S", 1000.0)
    (writer, _), (reader, faults) = await host.node(), await host.node()
    await writer.topics.create(TOPIC)
    ours, theirs = await writer.log(TOPIC, 0), await reader.log(TOPIC, 0)
    assert await theirs.read(0, EVERYTHING) == []
    assert reader.diskless.tail_sharing is not None
    for number in range(100):
        if number == 1:
            for _ in range(1000 * PATIENCE_S):
                if reader.diskless.tail_sharing.heard:
                    break
                await asyncio.sleep(0.001)
            faults.taken.clear()
        waiting = asyncio.ensure_future(theirs.wait_for_news(theirs.seen_tail))
        await asyncio.sleep(0)
        assert await ours.append(make_entry(f"{number}")) == number
        async with asyncio.timeout(PATIENCE_S):
            await waiting
            assert values_of(await theirs.read(number, EVERYTHING)) == [f"{number}"]
        assert theirs.seen_tail == number + 1
    assert not faults.taken


async def test_a_reader_follows_the_chain_to_its_next_link(host: Host) -> None:
    (writer, _), (reader, _) = await host.node(), await host.node()
    await writer.topics.create(TOPIC)
    ours, theirs = await writer.log(TOPIC, 0), await reader.log(TOPIC, 0)
    assert await theirs.read(0, EVERYTHING) == []
    for number in range(9):
        if number % 3 == 2:
            await ours.reconfigure("diskless")
        waiting = asyncio.ensure_future(theirs.wait_for_tail(number, PATIENCE_S))
        await asyncio.sleep(0)
        await ours.append(make_entry(f"{number}"))
        assert await waiting
        assert values_of(await theirs.read(number, EVERYTHING)) == [f"{number}"]
        assert theirs.epoch_at(number) == ours.epoch_at(number) == 1 + (number + 1) // 3


async def test_nodes_of_another_branch_of_history_are_not_heard(host: Host) -> None:
    """Those that were not ended when an older meta store was accepted."""
    old, _ = await host.node()
    await old.topics.create(TOPIC)
    before = await host.meta.get(keys.INCARNATION)
    await raise_incarnation(host.meta, host.objects, host.clock)
    await host.meta.put(keys.INCARNATION, b"{}" if before is None else before.value)
    behind, _ = await host.node()
    assert behind.incarnation.branch is None
    assert behind.diskless.tail_sharing is None
    accepted = await accept_older_meta(host.meta, host.objects, host.clock, SystemEntropy())
    assert msgspec.structs.astuple(accepted)[1]
    new, _ = await host.node()
    assert (old.incarnation.branch, new.incarnation.branch) == ("", accepted.branch)
    ours = await new.log(TOPIC, 0)
    await (await old.log(TOPIC, 0)).append(make_entry("x"))
    assert values_of(await ours.read(0, EVERYTHING)) == ["x"]
    assert new.diskless.tail_sharing is not None
    assert new.diskless.tail_sharing.heard == 0
