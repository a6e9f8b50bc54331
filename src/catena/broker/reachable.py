"""The nodes that a client can connect to, and what it is told that each of them does for a partition.

A client reaches the nodes that have a listener of the name through which it came. Of these, those that write are
candidates for leaders, by rendezvous hash. A leader that reads as well is all that a partition needs. Where it does
not, fetches are sent on to a node that reads, one of the client's rack if there is one; and since clients believe only
replicas, the replicas of the partition are the leader and, for each rack and for clients of none, the node that these
are sent to.
"""

from __future__ import annotations

from collections.abc import Sequence

from catena.cluster.membership import Membership
from catena.cluster.placement import NO_NODE, NodeId, PartitionOf, Placement
from catena.cluster.view import READ, WRITE, Address, NodeRecord, View


class Reachable:
    """Immutable, of one view and one listener."""

    def __init__(self, brokers: Sequence[tuple[NodeRecord, Address]]) -> None:
        self.brokers = brokers
        """All that serve, by id."""
        nodes = [node for node, _ in brokers]
        self._writers = Placement([node.node_id for node in nodes if WRITE in node.roles])
        readers = [node for node in nodes if READ in node.roles]
        self._reading = {node.node_id for node in readers}
        self._readers = Placement([node.node_id for node in readers])
        self._readers_by_rack = {
            rack: Placement([node.node_id for node in readers if node.rack == rack])
            for rack in sorted({node.rack for node in readers if node.rack})
        }

    @property
    def controller(self) -> NodeId:
        """Every node does what a controller does; clients want one to send it to."""
        return self.brokers[0][0].node_id if self.brokers else NO_NODE

    def leader(self, of: PartitionOf) -> NodeId:
        return self._writers.leader(of)

    def replicas(self, of: PartitionOf) -> list[NodeId]:
        """The leader first; none if there is none."""
        leader = self.leader(of)
        if leader == NO_NODE or leader in self._reading or not self._reading:
            return [] if leader == NO_NODE else [leader]
        readers = [self.reader(of, rack) for rack in ("", *self._readers_by_rack)]
        return list(dict.fromkeys([leader, *readers]))

    def reader(self, of: PartitionOf, rack: str) -> NodeId:
        """The node that serves fetches of this partition to clients of this rack; NO_NODE if nobody reads."""
        return self._readers_by_rack.get(rack, self._readers).leader(of)


class Reach:
    """What clients reach in the view as it is now, by listener."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._known: dict[str, Reachable] = {}
        self._known_in: View | None = None

    def by(self, listener: str) -> Reachable:
        view = self._membership.view
        if self._known_in is not view:
            self._known_in = view
            self._known.clear()
        reachable = self._known.get(listener)
        if reachable is None:
            nodes = [node for node in view.nodes if node.serves and listener in node.listeners]
            reachable = self._known[listener] = Reachable([(node, node.listeners[listener]) for node in nodes])
        return reachable
