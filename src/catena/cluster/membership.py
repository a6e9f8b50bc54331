"""This node's place in the cluster: registered for as long as it lives, and told who else is there.

A node is an ephemeral record under its id, so it is gone a session's time-to-live after it died, and at once when it
leaves. Nobody else ever changes its record.

- An **id** is given by the operator, or the lowest that is free. One that is given and held by another incarnation is
  waited for a while: after a crash that is our own predecessor, whose session is about to expire. If it does not, the
  holder lives, and this node refuses to start.
- A **session that is lost** (the process was paused, the store was away) can't be had back. The node registers again
  with a new one as soon as it can, under the same id if that is still free. If another node has taken it meanwhile, a
  node that was given its id stays unlisted until it is free again, and one that was not takes another: ask for
  `node_id` each time.
- The **view** is what the store said last. It outlives a store that is away. Expiry may wake no watch, so it is re-read
  every `refresh_ms` as well, which bounds how long after a death the others go on without the dead. While nobody looks
  at the view that is done more seldom (`runtime.refresher`): on some stores it costs money. This node is in its own
  view even while it is not registered, since whoever asks it has reached it; `alive` tells the difference.
  Being in a view promises nothing: whatever must not be done by two nodes needs a compare-and-set of its own.
"""

from __future__ import annotations

import logging
from typing import NoReturn, Self

import msgspec

from catena.cluster.placement import NodeId
from catena.cluster.view import NodeProfile, NodeRecord, View, decode_node, encode_node
from catena.errors import CatenaError, ConfigError, Conflict, Contended, OutcomeUnknown, SessionExpired
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore, Record, Session
from catena.runtime import Clock, Entropy, Tasks
from catena.runtime.refresher import Refresher, Revision
from catena.types import ABSENT, Expect, Version

log = logging.getLogger(__name__)

MAX_NODES = SCAN_LIMIT
MAX_NODE_ID = 2**31 - 1
MAX_ATTEMPTS = 10
PREDECESSOR_TTLS = 1.5
"""How long a given id is waited for: some stores need more than the time-to-live to be sure that a session is over."""
LOOKS_PER_TTL = 20


class MembershipSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_ttl_ms: int = 6_000
    refresh_ms: int = 1_000

    def __post_init__(self) -> None:
        if not 100 <= self.session_ttl_ms <= 600_000:
            raise ConfigError(f"setting session_ttl_ms: {self.session_ttl_ms} is not between 100 and 600000")
        if not 10 <= self.refresh_ms <= self.session_ttl_ms:
            raise ConfigError(f"setting refresh_ms: {self.refresh_ms} is not between 10 and session_ttl_ms")


class Membership:
    """Made by `join`; lasts until `close`."""

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        profile: NodeProfile,
        incarnation: str,
        given_id: NodeId | None,
        settings: MembershipSettings,
    ) -> None:
        self._meta = meta
        self._clock = clock
        self._settings = settings
        self._given_id = given_id
        self._record = NodeRecord(
            **msgspec.structs.asdict(profile),
            node_id=given_id or 0,
            incarnation=incarnation,
            started_at_ms=clock.now_ms(),
        )
        self._session: Session | None = None
        self._registered = False
        self._refused_by: str | None = None
        self._revision = Revision()
        self._view = View(0, ())
        self._tasks = Tasks("membership")
        self._watch = meta.watch(keys.NODES)
        self._refresher: Refresher | None = None

    @classmethod
    async def join(
        cls,
        meta: MetaStore,
        clock: Clock,
        entropy: Entropy,
        profile: NodeProfile,
        node_id: NodeId | None = None,
        settings: MembershipSettings | None = None,
    ) -> Self:
        """Register, with this id or with the lowest free one, and see who is there.

        Raises ConfigError if a live node holds the id, and whatever the store raises.
        """
        if node_id is not None and not 0 <= node_id <= MAX_NODE_ID:
            raise ConfigError(f"setting node id: {node_id} is not between 0 and {MAX_NODE_ID}")
        settings = settings or MembershipSettings()
        membership = cls(meta, clock, profile, entropy.hex_id(), node_id, settings)
        try:
            await membership._start()
        except BaseException:
            await membership.close()
            raise
        return membership

    @property
    def node_id(self) -> NodeId:
        return self._record.node_id

    @property
    def record(self) -> NodeRecord:
        return self._record

    @property
    def alive(self) -> bool:
        """Whether we believe that others see us. False is certain, or will be within a moment; True proves nothing."""
        return self._registered and self._session is not None and self._session.alive

    @property
    def view(self) -> View:
        if self._refresher is not None:
            self._refresher.used()
        return self._view

    @property
    def last_view(self) -> View:
        """The same, for those for whom an older one is good enough: to look at it keeps nobody at work."""
        return self._view

    async def changed(self, since: int) -> View:
        """The view, as soon as its revision is above `since`."""
        await self._revision.beyond(since)
        return self._view

    async def close(self) -> None:
        """Leave the cluster at once. The last view stays, without this node."""
        await self._tasks.close()
        self._watch.close()
        self._registered = False
        if self._session is not None:
            try:
                await self._session.close()
            except CatenaError as error:
                log.warning("node %d could not deregister, its session will expire: %s", self.node_id, error)
        self._publish([node for node in self._view.nodes if node.incarnation != self._record.incarnation])

    async def _start(self) -> None:
        deadline = self._clock.monotonic() + PREDECESSOR_TTLS * self._settings.session_ttl_ms / 1000
        while (holder := await self._register()) is not None:
            if self._clock.monotonic() >= deadline:
                _refuse(holder)
            await self._clock.sleep(self._settings.session_ttl_ms / 1000 / LOOKS_PER_TTL)
        await self._look()
        every_s = self._settings.refresh_ms / 1000
        self._refresher = Refresher(
            "view of the nodes",
            self._clock,
            self._tasks,
            every_s,
            self._watch.changed,
            self._refresh,
            is_urgent=lambda: not self.alive,
        )

    async def _refresh(self) -> None:
        if not self.alive:
            try:
                await self._register_again("its session was lost")
            except CatenaError:
                await self._look()  # what the store still says about the others is worth knowing
                raise
        if not await self._look() and self._registered:
            await self._register_again("its record is gone")
            await self._look()

    async def _register_again(self, reason: str) -> None:
        if self._registered:
            self._registered = False
            log.warning("node %d is not registered any more: %s; registering again", self.node_id, reason)
        before = self.node_id
        holder = await self._register()
        if holder is None:
            log.warning("node %d is registered again, as node %d", before, self.node_id)
        elif holder.incarnation != self._refused_by:
            log.error("node id %d has been taken by another node; this one is not listed until it is free", before)
        self._refused_by = None if holder is None else holder.incarnation

    async def _register(self) -> NodeRecord | None:
        """Under the id we have or may have; returns the holder, if that is another node."""
        for _ in range(MAX_ATTEMPTS):
            try:
                session = await self._living_session()
                if self._given_id is None:
                    await self._claim_free(session)
                elif (holder := await self._claim(session, self._given_id)) is not None:
                    return holder
            except SessionExpired:
                self._session = None
                continue
            self._registered = True
            return None
        raise Contended(f"the sessions of node {self.node_id} ended {MAX_ATTEMPTS} times while it registered")

    async def _living_session(self) -> Session:
        if self._session is not None and self._session.alive:
            return self._session
        for _ in range(MAX_ATTEMPTS):
            try:
                self._session = await self._meta.session(self._settings.session_ttl_ms)
            except OutcomeUnknown:
                continue  # nobody knows that session: it has no records, and expires
            return self._session
        raise OutcomeUnknown(f"no session could be had for node {self.node_id}")

    async def _claim_free(self, session: Session) -> None:
        """The id we had before, else the lowest that is free."""
        had_one = self._view.revision > 0
        if had_one and await self._claim(session, self.node_id) is None:
            return
        taken = {node.node_id: None for _, node in await self._list() if not self._is_own(node)}
        while len(taken) < MAX_NODES:
            candidate = next(number for number in range(MAX_NODES) if number not in taken)
            if await self._claim(session, candidate) is None:
                return
            taken[candidate] = None
        raise ConfigError(f"the cluster has {MAX_NODES} nodes, which is the limit")

    async def _claim(self, session: Session, node_id: NodeId) -> NodeRecord | None:
        """Write our record under this id; returns the holder, if that is another node."""
        record = msgspec.structs.replace(self._record, node_id=node_id)
        expect: Version | Expect = ABSENT
        for _ in range(MAX_ATTEMPTS):
            try:
                await self._meta.put(keys.node(node_id), encode_node(record), expect, session)
            except OutcomeUnknown:
                continue  # the next try finds what became of it
            except Conflict as conflict:
                if conflict.current is None:
                    expect = ABSENT
                    continue
                if not self._is_own(holder := decode_node(conflict.current)):
                    return holder
                # Of an earlier session, or the put that we just heard nothing of: this session's from now on.
                expect = conflict.current.version
            else:
                self._record = record
                return None
        raise OutcomeUnknown(f"it is not known whether node {node_id} is registered")

    async def _look(self) -> bool:
        """See who is there; returns whether we are."""
        nodes = []
        for record, node in await self._list():
            if self._is_own(node) and node.node_id != self.node_id:
                # A put of unknown outcome that landed after we had gone on to another id.
                await self._remove(record)
            else:
                nodes.append(node)
        listed = self._record in nodes
        if not any(node.node_id == self.node_id for node in nodes):
            nodes.append(self._record)
        self._publish(nodes)
        return listed

    async def _remove(self, record: Record) -> None:
        try:
            await self._meta.delete(record.key, record.version)
        except Conflict:
            pass

    async def _list(self) -> list[tuple[Record, NodeRecord]]:
        records = await self._meta.scan(keys.NODES, keys.after(keys.NODES), MAX_NODES)
        return [(record, decode_node(record)) for record in records]

    def _is_own(self, node: NodeRecord) -> bool:
        return node.incarnation == self._record.incarnation

    def _publish(self, nodes: list[NodeRecord]) -> None:
        view = View(self._view.revision + 1, nodes)
        if view.nodes != self._view.nodes:
            self._view = view
            self._revision.advance()


def _refuse(holder: NodeRecord) -> NoReturn:
    listeners = ", ".join(f"{name} {address}" for name, address in holder.listeners.items()) or "no listeners"
    raise ConfigError(
        f"setting node id: {holder.node_id} is held by a node that lives ({listeners}): "
        "stop that one, or give this node another id"
    )
