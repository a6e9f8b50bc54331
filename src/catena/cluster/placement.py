"""Which node leads a partition, and which one coordinates a group: a rendezvous hash over the nodes alive.

Every node draws a weight for every key, and the highest wins. So all who see the same nodes say the same, without a
word to each other; a node that comes takes an even share of the keys from all, one that goes leaves its own to all,
and no other key moves.

A key is hashed once (BLAKE2b, the same everywhere and for ever; one call serves 8 partitions), and then mixed with a
constant of each node by one multiplication, which is what makes many nodes cheap. What was computed is kept for as
long as the nodes are the same: make one Placement for each view of the cluster.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias

from catena.types import TopicId

NodeId: TypeAlias = int

NO_NODE: NodeId = -1
"""Where there are no nodes to choose from; the same number means "no leader" to Kafka's clients."""

BLOCK = 8
"""Partitions that share a hash."""
MAX_KEPT = 200_000
"""Leaders; past it they are computed anew."""

_BLOCK_SHIFT = 3
_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio: the high bits of a product with it depend on all bits of the other factor."""
_hashes = struct.Struct(f">{BLOCK}Q")


class Placement:
    def __init__(self, nodes: Sequence[NodeId]) -> None:
        """`nodes` in any order, none of them twice."""
        # Sorted, so that equal weights, should there ever be two, are settled in the same way by all.
        self._nodes = [(_constant(node), node) for node in sorted(nodes)]
        self._leaders: dict[tuple[TopicId, int], NodeId] = {}
        self._last_block: tuple[TopicId, int] | None = None
        self._last_hashes: tuple[int, ...] = ()

    def leader(self, topic_id: TopicId, partition: int) -> NodeId:
        leader = self._leaders.get((topic_id, partition))
        if leader is None:
            if len(self._leaders) >= MAX_KEPT:
                self._leaders.clear()
            leader = self._highest(self._hash(topic_id, partition))
            self._leaders[topic_id, partition] = leader
        return leader

    def coordinator(self, group_id: str) -> NodeId:
        """The node that coordinates this consumer group."""
        digest = blake2b(f"group {group_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return self._highest(int.from_bytes(digest, "big"))

    def _hash(self, topic_id: TopicId, partition: int) -> int:
        """Partitions are mostly asked for in their order, so it is enough to keep the hashes of one block."""
        block = (topic_id, partition >> _BLOCK_SHIFT)
        if block != self._last_block:
            digest = blake2b(f"partitions {topic_id} {block[1]}".encode(), digest_size=_hashes.size).digest()
            self._last_block, self._last_hashes = block, _hashes.unpack(digest)
        return self._last_hashes[partition & BLOCK - 1]

    def _highest(self, hashed: int) -> NodeId:
        if not self._nodes:
            return NO_NODE
        return max([((hashed ^ constant) * _ODD & _MASK, node) for constant, node in self._nodes])[1]


def _constant(node: NodeId) -> int:
    return int.from_bytes(blake2b(f"node {node}".encode(), digest_size=8).digest(), "big")
