"""What a node tells of topics, and what it asks the stores for that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from catena.metrics.others import OTHERS
from catena.metrics.topics import TopicFigures, TopicLooks
from catena.testing.contracts.loglet import make_entry
from tests.broker.world import BrokerNode, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as opened:
        yield World("memory", tmp_path, opened)


def looks_of(node: BrokerNode, looks: int = 100, shown: int = 10) -> TopicLooks:
    return TopicLooks(node.membership, node.view, node.node.open_log, node.node.clock, looks, shown)


async def make(node: BrokerNode, name: str, partitions: int = 1) -> None:
    await node.node.topics.create(name, partitions)
    await node.view.refresh()


async def test_records_bytes_and_chains(world: World) -> None:
    node = await world.node()
    await make(node, "t", 2)
    await make(node, "u")
    log = await node.node.log("t", 1)
    entries = [make_entry("x" * 1000), make_entry("a", "b", "c")]
    for entry in entries:
        await log.append(entry)
    await log.reconfigure("diskless")
    await node.node.drain()
    found = await looks_of(node).look()
    assert list(found) == ["t", "u"], "the largest one first"
    t = found["t"]
    assert (t.partitions, t.looked_at, t.records, t.untiered_records) == (2, 2, 4, 4)
    assert t.bytes == sum(entry.size for entry in entries)
    assert (t.links, t.epoch, t.sealed) == (2, 2, 0)
    assert found["u"] == TopicFigures(partitions=1, looked_at=1, links=1, epoch=1)
    await log.trim(1)
    await log.seal()
    t = (await looks_of(node).look())["t"]
    assert (t.records, t.untiered_records, t.sealed) == (3, 3, 1)


async def test_what_another_node_wrote_is_seen_with_its_turn(world: World) -> None:
    node, other = await world.node(0), await world.node(1)
    await world.together(node, other)
    await make(node, "t", 20)
    await other.view.refresh()
    for number in range(20):
        await (await other.node.log("t", number)).append(make_entry("a"))
    await other.node.drain()
    mine, theirs = looks_of(node, looks=3), looks_of(other, looks=1)
    led, rest = (await mine.look())["t"].partitions, (await theirs.look())["t"].partitions
    assert led + rest == 20, "each is told of once"
    assert (await theirs.look())["t"].records == rest, "what it wrote itself it knows"
    for _ in range(-(-led // 3)):
        await mine.look()
    found = (await mine.look())["t"]
    assert (found.records, found.looked_at) == (led, led)


async def test_few_reads_however_many_partitions(world: World) -> None:
    node = await world.node()
    await make(node, "t", 500)
    looks = looks_of(node, looks=10)
    before = node.faults.taken.total()
    found = (await looks.look())["t"]
    assert (found.partitions, found.looked_at) == (500, 10)
    assert node.faults.taken.total() - before <= 30


async def test_a_topic_that_is_deleted_meanwhile(world: World) -> None:
    node = await world.node()
    await make(node, "t")
    await (await node.node.log("t", 0)).append(make_entry("a"))
    looks = looks_of(node)
    assert (await looks.look())["t"].records == 1
    await node.node.topics.delete("t")
    await looks.look()
    await node.view.refresh()
    assert await looks.look() == {}


def test_many_are_one() -> None:
    topics = [TopicFigures(partitions=1, records=n, bytes=n, links=n, epoch=n, sealed=1) for n in range(1, 4)]
    others = TopicFigures(topics=0)
    for each in topics:
        others.add(each)
    assert others == TopicFigures(partitions=3, records=6, bytes=6, links=3, epoch=3, sealed=3, topics=3)


async def test_the_largest_are_told_of_one_by_one(world: World) -> None:
    node = await world.node()
    for name, records in (("small", 1), ("large", 9), ("empty", 0)):
        await make(node, name)
        if records:
            await (await node.node.log(name, 0)).append(make_entry(*["x"] * records))
    found = await looks_of(node, shown=1).look()
    assert list(found) == ["large", OTHERS]
    assert (found[OTHERS].records, found[OTHERS].topics) == (1, 2)
