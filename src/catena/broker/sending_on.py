"""Where a node that does not read sends fetches: to one that does.

Some clients ask in versions that know of it, and do not follow (aiokafka, unless it was given a rack), and some that do
find the node that they are sent to gone before others have noticed. Both come back with the same offset, over the same
connection. Who comes back is served here for a while: every node can.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec

from catena.broker.base import Client
from catena.broker.reachable import Reach
from catena.cluster.membership import Membership
from catena.cluster.placement import NO_NODE, NodeId, PartitionOf
from catena.runtime import Clock
from catena.types import Offset, TopicId

log = logging.getLogger(__name__)

BACK_S = 30.0
"""Who asks for the same again within this time has not followed."""
SERVED_S = 300.0
"""For so long it is served; then it is sent on again. Clients that follow ask a leader again as often."""
MAX_SENT = 10_000


class SentOn(msgspec.Struct):
    """Partitions of fetches, of a node that does not read; all 0 of one that does."""

    sent: int = 0
    """Whose clients were sent to a node that reads."""
    served: int = 0
    """That were served all the same, because the client came back."""
    refused: int = 0
    """Because nobody reads."""


class _Sent(NamedTuple):
    offset: Offset
    at: float
    came_back: bool


class SendingOn:
    def __init__(self, membership: Membership, clock: Clock) -> None:
        self._membership = membership
        self._clock = clock
        self._reach = Reach(membership)
        self._sent: dict[tuple[int, TopicId, int], _Sent] = {}
        """By connection and partition, the oldest first."""
        self._refused_in = -1
        self.counts = SentOn()

    def reader(self, of: PartitionOf, offset: Offset, client: Client, rack: str) -> NodeId | None:
        """Who serves a fetch of this offset to this client, of this rack; NO_NODE: nobody. None: this node does."""
        node_id = self._reader(of, offset, client, rack)
        if node_id is None:
            self.counts.served += 1
        elif node_id == NO_NODE:
            self.counts.refused += 1
        else:
            self.counts.sent += 1
        return node_id

    def _reader(self, of: PartitionOf, offset: Offset, client: Client, rack: str) -> NodeId | None:
        node_id = self._reach.by(client.listener).reader(of, rack)
        if node_id == NO_NODE:
            self._say_that_nobody_reads(client)
            return NO_NODE
        # A client is one object for each connection. Where a new one takes the place of one that is gone it is, at
        # worst, served here.
        key, now = (id(client), of.topic_id, of.partition), self._clock.monotonic()
        sent = self._sent.get(key)
        if sent is not None and sent.came_back and now - sent.at < SERVED_S:
            return None
        came_back = sent is not None and not sent.came_back and sent.offset == offset and now - sent.at < BACK_S
        self._sent.pop(key, None)
        self._sent[key] = _Sent(offset, now, came_back)
        if len(self._sent) > MAX_SENT:
            del self._sent[next(iter(self._sent))]
        return None if came_back else node_id

    def _say_that_nobody_reads(self, client: Client) -> None:
        """Once for each view: clients ask again and again."""
        if self._refused_in != self._membership.view.revision:
            self._refused_in = self._membership.view.revision
            log.warning(
                "fetches are refused: no node that has the role `read` is reachable by listener %r", client.listener
            )
