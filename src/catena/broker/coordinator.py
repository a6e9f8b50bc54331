"""The groups that this node coordinates: who is asked, when they are loaded, and when they are let go.

The coordinator of a group follows from the nodes alive (`Placement.coordinator`), so everybody finds it without a word.
A node that is asked and is not it says so. One that is takes the group over at the first request and keeps it from then
on. Views of nodes differ for a while whenever one comes or goes, so two nodes can both think that a group is theirs;
what keeps them apart is the store (`group_store`): each write and each fetch of offsets is good only while no other
node has taken over since. All that a coordinator in error can do is to answer heartbeats a little longer, and it stops
that as soon as it sees the view, its own session's end, or a refused write.

A stable group survives a failover as it is: its members find the new coordinator, which gives each a new session.

What runs beside the requests:
- one task that tells machines the time, for all groups. A process that was stopped finds sessions expired whose
  heartbeats lie unread in its sockets; it reads those first. If it has lost its own session, others may have changed
  its groups: it lets all go, and takes those over anew that are still its own.
- a look at the nodes, which drops the groups that are others' now, and one at the topics, for consumer groups.
- now and then a sweep over all stored groups of this node. It loads those that have members, as their coordinator may
  be gone and they too, so that their sessions end; and it deletes empty ones in which nothing has happened for
  `offsets_retention_minutes`, which is when Kafka would have expired the last of their offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple, TypeVar, cast

import msgspec

from catena.broker.error_codes import code_of
from catena.broker.group_shell import GroupShell
from catena.broker.group_store import CommittedOffset, GroupStore, HeldGroup, Slot
from catena.cluster.membership import Membership
from catena.errors import BackPressure, CatenaError, OutcomeUnknown, RetryLater, StaleView, StoreFull
from catena.groups.base import GroupError, GroupSettings, GroupView
from catena.groups.classic import ClassicGroup
from catena.groups.classic_values import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    LeaveResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
)
from catena.groups.consumer_values import (
    ConsumerGroupView,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    TopicInfo,
)
from catena.groups.group import classic_for_join, consumer_for_heartbeat, restore
from catena.groups.offsets import check_commit, check_fetch, check_offset_delete
from catena.groups.subscription import CONSUMER_PROTOCOL_TYPE
from catena.groups.timers import Timers
from catena.meta.base import MetaStore
from catena.runtime import Clock, Entropy, Tasks, shielded
from catena.virtual_log.topic_view import TopicView
from catena.wire.codes import Code

log = logging.getLogger(__name__)

T = TypeVar("T")

LOADS_AT_ONCE = 32
LOOK_FOR_IDLE = 100
"""Of the groups that were not used for longest."""
TICK_S = 0.05
STOPPED_S = 2.0
"""A tick that comes so late was not just late: the process was stopped, or choked."""
CATCH_UP_S = 3.0

Positive = Annotated[int, msgspec.Meta(ge=1)]


class CoordinatorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limits: GroupSettings = GroupSettings()
    max_groups: Positive = 10_000
    """In memory. Empty ones that are not used make room for others; they are stored."""
    load_max_ms: Positive = 5_000
    """How long a request waits for its group to be loaded; then it is told to come again."""
    offsets_retention_minutes: Positive = 7 * 24 * 60
    sweep_ms: Positive = 600_000


class Committer(NamedTuple):
    """Who commits, as an OffsetCommit says."""

    member_id: str
    generation: int
    """Or the member epoch. Below 0: nobody of the group, as long as it is empty."""
    instance_id: str | None
    version: int
    """Of the request."""


class NewOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str


def group_code(error: CatenaError, again: Code = Code.COORDINATOR_LOAD_IN_PROGRESS) -> Code:
    """`again` is for what the same coordinator is to be asked again. Clients do just that when they are told
    COORDINATOR_LOAD_IN_PROGRESS, but not after SyncGroup, Heartbeat and LeaveGroup: COORDINATOR_NOT_AVAILABLE there."""
    if isinstance(error, StaleView):
        return Code.NOT_COORDINATOR
    if isinstance(error, RetryLater | OutcomeUnknown | StoreFull):
        return again
    return code_of(error)


class Coordinator:
    """Usable from `start` to `close`. Raises StaleView where another node is to be asked, RetryLater where the same one
    is to be asked again, OutcomeUnknown for commits that may have been made."""

    def __init__(
        self,
        meta: MetaStore,
        membership: Membership,
        view: TopicView,
        clock: Clock,
        entropy: Entropy,
        settings: CoordinatorSettings | None = None,
    ) -> None:
        self._membership = membership
        self._view = view
        self._clock = clock
        self._settings = settings or CoordinatorSettings()
        self._store = GroupStore(meta, clock, entropy)
        self._tasks = Tasks("group coordinator")
        self._groups: OrderedDict[str, GroupShell] = OrderedDict()
        """The one that was used last stands last."""
        self._loads: dict[str, asyncio.Task[GroupShell | CatenaError]] = {}
        self._load_slots = asyncio.Semaphore(LOADS_AT_ONCE)
        self._timers: Timers[str] = Timers()
        self._has_groups = asyncio.Event()
        self._topics: tuple[int, Mapping[str, TopicInfo]] = (-1, {})

    async def start(self) -> None:
        self._tasks.spawn("keep time", self._keep_time())
        self._tasks.spawn("follow nodes", self._follow_nodes())
        self._tasks.spawn("follow topics", self._follow_topics())
        self._tasks.spawn("sweep", self._sweep_now_and_then())

    async def close(self) -> None:
        """All who wait are told to ask another node."""
        self._drop_all("this coordinator goes away")
        await self._tasks.close()

    # Classic groups

    async def join(self, group_id: str, request: JoinRequest) -> JoinResponse:
        group = await self._group(group_id)
        machine = classic_for_join(group.machine, group_id, self._settings.limits)
        if isinstance(machine, GroupError):
            return JoinResponse(error=machine, member_id=request.member_id)
        group.machine = machine
        return cast(JoinResponse, await group.ask(lambda ticket: machine.join(self._now(), ticket, request)))

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResponse:
        group = await self._group(group_id)
        if not isinstance(machine := group.machine, ClassicGroup):
            return SyncResponse(error=GroupError.UNKNOWN_MEMBER_ID)
        return cast(SyncResponse, await group.ask(lambda ticket: machine.sync(self._now(), ticket, request)))

    async def heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatResponse:
        group = await self._group(group_id)
        if not isinstance(machine := group.machine, ClassicGroup):
            return HeartbeatResponse(error=GroupError.UNKNOWN_MEMBER_ID)
        return cast(HeartbeatResponse, await group.ask(lambda ticket: machine.heartbeat(self._now(), ticket, request)))

    async def leave(self, group_id: str, members: tuple[LeavingMember, ...]) -> LeaveResponse:
        group = await self._group(group_id)
        if not isinstance(machine := group.machine, ClassicGroup):
            return LeaveResponse(error=GroupError.UNKNOWN_MEMBER_ID)
        return cast(LeaveResponse, await group.ask(lambda ticket: machine.leave(self._now(), ticket, members)))

    # Consumer groups

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatResponse:
        group = await self._group(group_id)
        machine = consumer_for_heartbeat(
            group.machine, group_id, request.member_epoch, self._settings.limits, self._all_topics()
        )
        if isinstance(machine, GroupError):
            return ConsumerHeartbeatResponse(error=machine, message=f"there is no consumer group {group_id!r}")
        group.machine = machine
        response = await group.ask(lambda ticket: machine.heartbeat(self._now(), ticket, request))
        return cast(ConsumerHeartbeatResponse, response)

    # Both kinds

    async def describe(self, group_id: str) -> GroupView | ConsumerGroupView | None:
        group = await self._group(group_id)
        return group.machine.describe() if group.exists and group.machine is not None else None

    async def list_groups(self) -> list[ListedGroup]:
        """Those of this node, loaded or not."""
        listed: dict[str, ListedGroup] = {}
        async for group_id, header in self._store.headers():
            if self._is_ours(group_id):
                # Not loaded: whether its members are still there will be seen once one of them asks.
                state = "Empty" if header.is_empty else "Stable"
                listed[group_id] = ListedGroup(group_id, header.protocol_type, state, header.kind)
        for group_id, group in self._groups.items():
            listed.pop(group_id, None)
            if group.exists and group.machine is not None:
                view = group.machine.describe()
                classic = isinstance(view, GroupView)
                protocol_type = view.protocol_type if isinstance(view, GroupView) else CONSUMER_PROTOCOL_TYPE
                kind = "classic" if classic else "consumer"
                listed[group_id] = ListedGroup(group_id, protocol_type, view.state, kind)
        return [listed[group_id] for group_id in sorted(listed)]

    async def delete(self, group_id: str) -> GroupError:
        return await self._delete(await self._group(group_id))

    # Offsets

    async def commit(self, group_id: str, committer: Committer, offsets: Mapping[Slot, NewOffset]) -> GroupError:
        """Stored when it returns NONE; else nothing of it is."""
        group = await self._group(group_id)
        machine, (member_id, generation, instance_id, version) = group.machine, committer
        error = check_commit(machine, member_id, generation, instance_id, version=version)
        if error is not GroupError.NONE:
            return error
        if machine is None:
            group.machine = ClassicGroup(group_id, self._settings.limits)
        elif isinstance(machine, ClassicGroup):
            machine.touch(self._now(), member_id)
        now_ms = self._clock.now_ms()
        await group.commit({slot: CommittedOffset(*new, committed_at_ms=now_ms) for slot, new in offsets.items()})
        return GroupError.NONE

    async def fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> HeldGroup | GroupError:
        """The group with its offsets: none that was acked by anybody before this call is missing."""
        group = await self._group(group_id)
        error = check_fetch(group.machine, member_id, member_epoch)
        if error is not GroupError.NONE:
            return error
        await group.confirm()
        return group.held

    async def delete_offsets(
        self, group_id: str, slots: Mapping[str, list[Slot]]
    ) -> GroupError | dict[str, GroupError]:
        """The error of all, or what became of each topic."""
        group = await self._group(group_id)
        machine = group.machine if group.exists else None
        errors = {topic: check_offset_delete(machine, topic) for topic in slots}
        for error in (check_offset_delete(machine, ""), *errors.values()):
            if error in (GroupError.GROUP_ID_NOT_FOUND, GroupError.NON_EMPTY_GROUP):
                return error
        removed = {slot: None for topic, ours in slots.items() if errors[topic] is GroupError.NONE for slot in ours}
        await group.commit(removed)
        return errors

    @property
    def held(self) -> Iterable[HeldGroup]:
        """The groups that are loaded here, with their offsets."""
        return [group.held for group in self._groups.values() if group.exists]

    # Loading and letting go

    def _is_ours(self, group_id: str) -> bool:
        membership = self._membership
        return membership.alive and membership.view.placement.coordinator(group_id) == membership.node_id

    def _require_ours(self, group_id: str) -> None:
        if not self._is_ours(group_id):
            raise StaleView(f"this node does not coordinate group {group_id!r}")

    async def _group(self, group_id: str) -> GroupShell:
        self._require_ours(group_id)
        group = self._groups.get(group_id)
        if group is not None:
            self._groups.move_to_end(group_id)
            return group
        load = self._loads.get(group_id)
        if load is None:
            load = self._loads[group_id] = self._tasks.spawn("load group", self._load(group_id))
        try:
            async with asyncio.timeout(self._settings.load_max_ms / 1000):
                # Shielded: others wait for it, too.
                outcome = await shielded(load)
        except TimeoutError:
            raise RetryLater(f"group {group_id!r} is being loaded") from None
        if isinstance(outcome, CatenaError):
            raise outcome
        return outcome

    async def _load(self, group_id: str) -> GroupShell | CatenaError:
        try:
            async with self._load_slots:
                held, snapshot = await self._store.take_over(group_id, self._membership.node_id)
            self._require_ours(group_id)
            machine = None
            if held.exists:
                machine = restore(group_id, snapshot, self._now(), self._settings.limits, self._all_topics())
            self._make_room()
        except CatenaError as error:
            return error
        finally:
            del self._loads[group_id]
        group = GroupShell(self._store, held, machine, self._tasks, self._set_timer, self._dropped)
        self._groups[group_id] = group
        self._has_groups.set()
        self._set_timer(group)
        return group

    def _make_room(self) -> None:
        if len(self._groups) < self._settings.max_groups:
            return
        for group, _ in zip(self._groups.values(), range(LOOK_FOR_IDLE), strict=False):
            if group.is_idle:
                group.drop(StaleView("it made room for others"))
                return
        raise BackPressure(f"this node coordinates {len(self._groups)} groups, which is its limit (max_groups)")

    def _dropped(self, group: GroupShell, error: CatenaError) -> None:
        log.info("group %r is let go: %s", group.group_id, error)
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]
            self._timers.cancel(group.group_id)

    async def _delete(self, group: GroupShell) -> GroupError:
        if group.machine is None or not group.exists:
            return GroupError.GROUP_ID_NOT_FOUND
        error = group.machine.delete()
        if error is GroupError.NONE:
            await group.delete()
        return error

    # Beside the requests

    def _now(self) -> float:
        return self._clock.monotonic()

    def _set_timer(self, group: GroupShell) -> None:
        deadline = None if group.machine is None else group.machine.next_deadline()
        if deadline is None:
            self._timers.cancel(group.group_id)
        else:
            self._timers.set(group.group_id, deadline)

    async def _keep_time(self) -> None:
        while True:
            if not self._groups:
                self._has_groups.clear()
                await self._has_groups.wait()
            before = self._now()
            deadline = self._timers.next_deadline()
            pause_s = TICK_S if deadline is None else min(max(deadline - before, 0.0), TICK_S)
            await self._clock.sleep(pause_s)
            if not self._membership.alive:
                self._drop_all("this node has lost its session")
            elif self._now() - before > pause_s + STOPPED_S:
                await self._clock.sleep(CATCH_UP_S)
            else:
                self._tick(self._now())

    def _tick(self, now: float) -> None:
        while (group_id := self._timers.pop_due(now)) is not None:
            group = self._groups[group_id]
            if group.machine is not None:
                group.run(group.machine.tick(now))

    def _drop_all(self, reason: str) -> None:
        for group in list(self._groups.values()):
            group.drop(StaleView(reason))

    async def _follow_nodes(self) -> None:
        revision = self._membership.view.revision
        while True:
            view = await self._membership.changed(revision)
            revision = view.revision
            for group in list(self._groups.values()):
                if view.placement.coordinator(group.group_id) != self._membership.node_id:
                    group.drop(StaleView(f"another node coordinates group {group.group_id!r} now"))

    async def _follow_topics(self) -> None:
        revision = self._view.revision
        while True:
            revision = await self._view.changed(revision)
            topics = self._all_topics()
            for group in list(self._groups.values()):
                if group.machine is not None and not isinstance(group.machine, ClassicGroup):
                    group.run(group.machine.topics_changed(self._now(), topics))

    def _all_topics(self) -> Mapping[str, TopicInfo]:
        revision = self._view.revision
        if self._topics[0] != revision:
            topics = {topic.name: TopicInfo(topic.topic_id, topic.partitions) for topic in self._view.all()}
            self._topics = (revision, topics)
        return self._topics[1]

    async def _sweep_now_and_then(self) -> None:
        while True:
            await self._clock.sleep(self._settings.sweep_ms / 1000)
            try:
                await self.sweep()
            except CatenaError as error:
                log.warning("not all groups were looked at: %s", error)

    async def sweep(self) -> None:
        """See to the stored groups of this node that nobody has asked for."""
        oldest_ms = self._clock.now_ms() - self._settings.offsets_retention_minutes * 60_000
        due = [
            group_id
            async for group_id, header in self._store.headers()
            if self._is_ours(group_id) and (not header.is_empty or header.changed_at_ms <= oldest_ms)
        ]
        for group_id in due:
            try:
                group = await self._group(group_id)
                if group.held.exists and group.is_idle and group.held.quiet_since_ms() <= oldest_ms:
                    log.info("group %r has been empty for long: its offsets expire", group_id)
                    await self._delete(group)
            except CatenaError as error:
                log.warning("group %r could not be looked at: %s", group_id, error)
