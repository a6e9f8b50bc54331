"""What a node tells of itself survives the store, and other versions of it."""

from __future__ import annotations

import msgspec
import pytest

from catena.cluster.placement import PartitionOf, Placement
from catena.cluster.view import READ, ROLES, WRITE, Address, NodeRecord, View, decode_node, encode_node
from catena.errors import Corrupt
from catena.meta import keys
from catena.meta.base import Record
from catena.types import TopicId, Version


def node(node_id: int, *roles: str) -> NodeRecord:
    return NodeRecord(
        node_id=node_id,
        incarnation="1f" * 16,
        started_at_ms=1_700_000_000_000,
        listeners={"inside": Address("10.0.0.1", 9092), "outside": Address("example.org", 19092)},
        roles=roles or ROLES,
    )


def stored(value: bytes) -> Record:
    return Record(keys.node(1), value, Version("1"))


def test_round_trip() -> None:
    assert decode_node(stored(encode_node(node(1)))) == node(1)


def test_fields_of_a_newer_version_are_passed_over() -> None:
    fields = msgspec.json.decode(encode_node(node(1)))
    assert decode_node(stored(msgspec.json.encode(fields | {"zone": "a"}))) == node(1)


@pytest.mark.parametrize("value", [b"", b"{", b"{}", b'{"node_id": "one"}'])
def test_what_cannot_be_read_is_named(value: bytes) -> None:
    with pytest.raises(Corrupt, match=keys.node(1)):
        decode_node(stored(value))


def test_a_view_is_sorted_by_id_as_a_number() -> None:
    view = View(3, [node(10), node(9), node(100)])
    assert [each.node_id for each in view.nodes] == [9, 10, 100]
    assert view.get(10) == node(10)
    assert view.get(11) is None
    assert repr(view) == "View(3, nodes [9, 10, 100])"


def test_its_placement_is_over_those_that_serve_and_its_writers_over_those_that_write() -> None:
    view = View(1, [node(1), node(2, "transformer"), node(3, "transformer", WRITE), node(4, READ)])
    assert [each.serves for each in view.nodes] == [True, False, True, True]
    for placement, nodes in ((view.placement, [1, 3, 4]), (view.writers, [1, 3])):
        expected = Placement(nodes)
        for partition in range(50):
            of = PartitionOf(TopicId("0" * 32), partition, 50)
            assert placement.leader(of) == expected.leader(of)
