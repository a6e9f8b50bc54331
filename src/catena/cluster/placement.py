"""Which node leads a partition, and which one coordinates a group: a rendezvous hash over the nodes alive.

Every node draws a weight for every key, and the highest wins. So all who see the same nodes say the same, without a
word to each other; a node that comes takes an even share of the keys from all, one that goes leaves its own to all,
and no other key moves. For groups that is all.

Chance alone would give 6 of 8 partitions or more to one node of two, nearly every third time. So the partitions of a
topic are dealt out, `DEALT` at a time: each goes to the node with the highest weight for it among those that have not
had their share, and of one deal no node has two more than another. For that some partitions move that need not when a
node comes or goes: about one in ten, and fewer where there are many for each node. Some move when a topic gets more
partitions, too, those of its last deal.

A key is hashed once (BLAKE2b, the same everywhere and for ever; one call serves 8 partitions), and then mixed with a
constant of each node by one multiplication, which is what makes many nodes cheap. What was computed is kept for as
long as the nodes are the same: make one Placement for each view of the cluster.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from catena.types import TopicId

NodeId: TypeAlias = int

NO_NODE: NodeId = -1
"""Where there are no nodes to choose from; the same number means "no leader" to Kafka's clients."""

DEALT = 64
"""Partitions that are dealt out together: what one request about one partition may have to compute is bounded."""
MAX_KEPT = 200_000
"""Leaders; past it they are computed anew."""

_PER_HASH = 8
_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio: the high bits of a product with it depend on all bits of the other factor."""
_hashes = struct.Struct(f">{_PER_HASH}Q")


class PartitionOf(NamedTuple):
    topic_id: TopicId
    partition: int
    partitions: int
    """That the topic has."""


class Placement:
    def __init__(self, nodes: Sequence[NodeId]) -> None:
        """`nodes` in any order, none of them twice."""
        # Sorted, so that equal weights, should there ever be two, are settled in the same way by all.
        self._nodes = [(_constant(node), node) for node in sorted(nodes)]
        self._dealt: dict[tuple[TopicId, int, int], list[NodeId]] = {}
        """By the first partition and their number."""
        self._kept = 0

    def leader(self, of: PartitionOf) -> NodeId:
        first = of.partition - of.partition % DEALT
        key = (of.topic_id, first, min(DEALT, of.partitions - first))
        leaders = self._dealt.get(key)
        if leaders is None:
            if self._kept >= MAX_KEPT:
                self._dealt.clear()
                self._kept = 0
            leaders = self._dealt[key] = self._deal(_hashes_of(*key))
            self._kept += len(leaders)
        return leaders[of.partition - first]

    def coordinator(self, group_id: str) -> NodeId:
        """The node that coordinates this consumer group."""
        digest = blake2b(f"group {group_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return _highest(int.from_bytes(digest, "big"), self._nodes) if self._nodes else NO_NODE

    def _deal(self, hashes: Sequence[int]) -> list[NodeId]:
        if not self._nodes:
            return [NO_NODE] * len(hashes)
        fewest, one_more = divmod(len(hashes), len(self._nodes))
        had = dict.fromkeys([node for _, node in self._nodes], 0)
        left, leaders = self._nodes, []
        for hashed in hashes:
            node = _highest(hashed, left)
            leaders.append(node)
            had[node] += 1
            if had[node] > fewest:
                one_more -= 1
            if had[node] >= fewest:
                share = fewest + 1 if one_more else fewest
                left = [each for each in left if had[each[1]] < share]
        return leaders


def _highest(hashed: int, nodes: Sequence[tuple[int, NodeId]]) -> NodeId:
    return max([((hashed ^ constant) * _ODD & _MASK, node) for constant, node in nodes])[1]


def _hashes_of(topic_id: TopicId, first: int, count: int) -> list[int]:
    hashes: list[int] = []
    for block in range(first // _PER_HASH, (first + count - 1) // _PER_HASH + 1):
        digest = blake2b(f"partitions {topic_id} {block}".encode(), digest_size=_hashes.size).digest()
        hashes += _hashes.unpack(digest)
    return hashes[:count]


def _constant(node: NodeId) -> int:
    return int.from_bytes(blake2b(f"node {node}".encode(), digest_size=8).digest(), "big")
