"""Tells consumers that their partitions are led elsewhere now, so that a node that came back has its share of them.

Any node serves any partition, so nothing forces a client to notice that a node has joined: it would go on where it is
until it next asks for metadata by itself, after five minutes by default. So the first fetch of a connection after the
nodes have changed is answered NOT_LEADER_OR_FOLLOWER for those partitions that this node has lost: each Kafka client
then asks who leads, without a word to its application. It is told once; who comes back all the same is served.

- Only where this node was a replica when the connection was last looked at: who fetches elsewhere on purpose is left in
  peace.
- Not before the nodes have been the same for `SETTLED_S`: by then all nodes tell the same, whichever of them is asked.
- **Fetches only.** A batch of an idempotent producer that was refused here, while those behind it are under way, could
  be overtaken by them at a log that does not know the producer yet. Producers stay until they ask by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

from catena.broker.base import Client
from catena.broker.reachable import Reach, Reachable
from catena.cluster.membership import Membership
from catena.cluster.placement import PartitionOf
from catena.cluster.view import View
from catena.runtime import Clock

SETTLED_S = 10.0
MAX_CONNECTIONS = 10_000


class MovedLeaders:
    def __init__(self, membership: Membership, clock: Clock) -> None:
        self._membership = membership
        self._clock = clock
        self._reach = Reach(membership)
        self._view: View | None = None
        self._view_since = 0.0
        self._served_in: dict[int, Reachable] = {}
        """By connection, the one that was looked at longest ago first."""

    def of(self, fetched: Iterable[PartitionOf], client: Client) -> list[bool]:
        """For each whether this client is to be told now that it is led elsewhere; empty: of none."""
        if (view := self._membership.view) is not self._view:
            self._view, self._view_since = view, self._clock.monotonic()
        # A client is one object for each connection. Where a new one takes the place of one that is gone it may, at
        # worst, be told once too often.
        before, now = self._served_in.get(id(client)), self._reach.by(client.listener)
        if before is now:
            return []
        moved = [] if before is None else [self._has_lost(each, before, now) for each in fetched]
        if any(moved) and self._clock.monotonic() - self._view_since < SETTLED_S:
            return []
        self._served_in.pop(id(client), None)
        self._served_in[id(client)] = now
        if len(self._served_in) > MAX_CONNECTIONS:
            del self._served_in[next(iter(self._served_in))]
        return moved

    def _has_lost(self, of: PartitionOf, before: Reachable, now: Reachable) -> bool:
        node_id, served_by = self._membership.node_id, now.replicas(of)
        return bool(served_by) and node_id not in served_by and node_id in before.replicas(of)
