"""Who leads and who reads, by listener and rack: every client can follow what it is told."""

from __future__ import annotations

from catena.broker.reachable import Reach, Reachable
from catena.cluster.placement import NO_NODE, PartitionOf
from catena.cluster.view import READ, WRITE, Address, NodeRecord
from catena.types import TopicId
from tests.broker.world import World

TOPIC = TopicId("a" * 32)
RACKS = ("", "a", "b", "elsewhere")
PARTITIONS = 200
FIRST = PartitionOf(TOPIC, 0, PARTITIONS)


def reachable(*nodes: tuple[int, tuple[str, ...], str | None]) -> Reachable:
    address = Address("h", 1)
    records = [
        NodeRecord(node_id=node, incarnation="x", started_at_ms=0, listeners={}, roles=roles, rack=rack)
        for node, roles, rack in nodes
    ]
    return Reachable([(record, address) for record in records])


def test_a_reader_is_always_a_replica_of_a_leader_that_does_not_read() -> None:
    found = reachable(
        (1, (WRITE,), "a"),
        (2, (WRITE,), "b"),
        (3, (READ,), "a"),
        (4, (READ,), "a"),
        (5, (READ,), "b"),
        (6, (READ,), None),
    )
    used: set[int] = set()
    for partition in range(PARTITIONS):
        of = PartitionOf(TOPIC, partition, PARTITIONS)
        leader, *readers = found.replicas(of)
        assert leader == found.leader(of)
        assert leader in (1, 2)
        chosen = {rack: found.reader(of, rack) for rack in RACKS}
        assert chosen["a"] in (3, 4)
        assert chosen["b"] == 5
        assert chosen[""] == chosen["elsewhere"]
        assert set(chosen.values()) == set(readers)
        assert 2 <= len(readers) <= 3
        used.update(chosen.values())
    assert used == {3, 4, 5, 6}


def test_a_leader_that_reads_is_enough() -> None:
    found = reachable((1, (WRITE, READ), None), (2, (READ,), None))
    assert {tuple(found.replicas(PartitionOf(TOPIC, partition, 50))) for partition in range(50)} == {(1,)}


def test_without_readers_or_writers() -> None:
    writers, readers, nobody = reachable((1, (WRITE,), None)), reachable((2, (READ,), None)), reachable()
    assert (writers.replicas(FIRST), writers.reader(FIRST, "")) == ([1], NO_NODE)
    assert (readers.replicas(FIRST), readers.reader(FIRST, "")) == ([], 2)
    assert (nobody.replicas(FIRST), nobody.controller) == ([], NO_NODE)


async def test_what_is_known_goes_with_the_view(world: World) -> None:
    first = await world.node(1)
    reach = Reach(first.membership)
    assert reach.by("main") is reach.by("main")
    assert [node.node_id for node, _ in reach.by("main").brokers] == [1]
    second = await world.node(2)
    await world.together(first, second)
    assert [node.node_id for node, _ in reach.by("main").brokers] == [1, 2]
    assert reach.by("none").brokers == []
