"""Machines that run what a serving node is made of, as far as groups go, on the one meta store that all share.

Clients speak to a node by `GroupMachine.call`: a request goes in, and the answer of the product's own handlers comes
out, or `NoAnswer`. See `cluster`, which does the same for the log.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec

from catena.broker.base import Client, Handler
from catena.broker.coordinator import Coordinator, CoordinatorSettings
from catena.broker.group_offsets import GroupOffsets
from catena.broker.groups import Groups
from catena.cluster.membership import Membership, MembershipSettings
from catena.cluster.view import Address, NodeProfile
from catena.errors import ConfigError, RetryLater
from catena.groups.base import GroupSettings
from catena.meta import keys
from catena.runtime import Clock, Entropy
from catena.types import TopicId
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord
from catena.wire.apis import APIS
from catena.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from catena.wire.requests import Request
from catena.wire.schema import Message
from sim.chaos import Chaos, Tally
from sim.checker import Violation
from sim.group_history import GroupHistory, Slot
from sim.group_invariants import GroupInvariants
from sim.group_scenario import GroupScenario
from sim.group_steps import GroupMeta
from sim.loop import Chance, Process, SimLoop
from sim.machine import Machine, NoAnswer
from sim.runtime import SimClock, SimEntropy
from sim.stores import ObservedMeta, Wire, at_once

LISTENER = "main"
TOPICS = ("a", "b")
STOP_S = 20.0

_apis = {api.request: api for api in APIS.values()}


class GroupNode:
    """Put together as `catena.serve` does it."""

    def __init__(self, opened: AsyncExitStack, groups: Groups, offsets: GroupOffsets, membership: Membership) -> None:
        self._opened = opened
        self.membership = membership
        self._handlers: dict[str, Handler] = {
            "FindCoordinator": groups.find_coordinator,
            "JoinGroup": groups.join_group,
            "SyncGroup": groups.sync_group,
            "Heartbeat": groups.heartbeat,
            "LeaveGroup": groups.leave_group,
            "DeleteGroups": groups.delete_groups,
            "ConsumerGroupHeartbeat": groups.consumer_group_heartbeat,
            "OffsetCommit": offsets.offset_commit,
            "OffsetFetch": offsets.offset_fetch,
            "OffsetDelete": offsets.offset_delete,
        }

    @classmethod
    async def start(
        cls, scenario: GroupScenario, meta: GroupMeta, clock: Clock, entropy: Entropy, address: Address
    ) -> GroupNode:
        async with AsyncExitStack() as opened:
            view = TopicView(meta, clock)
            opened.push_async_callback(view.close)
            await view.start()
            membership = await Membership.join(
                meta,
                clock,
                entropy,
                NodeProfile(listeners={LISTENER: address}),
                address.port if scenario.given_ids else None,
                MembershipSettings(session_ttl_ms=scenario.node_ttl_ms, refresh_ms=scenario.refresh_ms),
            )
            opened.push_async_callback(membership.close)
            coordinator = Coordinator(meta, membership, view, clock, entropy, _settings(scenario))
            await coordinator.start()
            opened.push_async_callback(coordinator.close)
            groups = Groups(coordinator, membership, view, entropy)
            return cls(opened.pop_all(), groups, GroupOffsets(coordinator, view), membership)

    async def handle(self, request: Request, client: Client) -> Message:
        answer = await self._handlers[request.api.name](request, client)
        assert isinstance(answer, Message)
        return answer

    async def close(self) -> None:
        await self.membership.close()
        await self._opened.aclose()


def _settings(scenario: GroupScenario) -> CoordinatorSettings:
    return CoordinatorSettings(
        limits=GroupSettings(
            min_session_timeout_s=1.0,
            initial_rebalance_delay_s=scenario.initial_rebalance_delay_s,
            new_member_join_timeout_s=20.0,
            consumer_session_timeout_s=scenario.session_s,
            consumer_heartbeat_interval_s=scenario.session_s / 4,
            consumer_unsettled_heartbeat_interval_s=0.5,
        ),
        sweep_ms=scenario.sweep_ms,
    )


class GroupMachine(Machine[GroupNode]):
    def __init__(self, number: int, world: GroupWorld) -> None:
        super().__init__(f"n{number}", world.loop, world.random, world.history, world.scenario.processes.skew_ms)
        self.address = Address(self.name, number)
        self._world = world

    async def _start_node(self, clock: SimClock, entropy: SimEntropy) -> GroupNode:
        world = self._world
        try:
            return await GroupNode.start(world.scenario, world.meta_for_a_process(), clock, entropy, self.address)
        except ConfigError as error:
            raise RetryLater("the store still has the session of the process before") from error

    @property
    def is_up(self) -> bool:
        return self.node is not None and self.process is not None and self.process.alive

    async def stop(self) -> bool:
        """A clean end. Returns whether the process is gone by it, and not by a crash, after which it starts again."""
        node, process = self.node, self.process
        if node is None or process is None:
            return False
        self.node = None
        self._history.note(f"{process} leaves")
        try:
            await self._run_in_process(process, node.close(), STOP_S, lambda: False)
        except NoAnswer:
            pass  # it was struck, or hangs
        if not process.alive:
            return False
        self._loop.crash(process)
        self._hang_up(f"{process} has ended")
        return True

    async def call(self, name: str, body: Message, version: int, patience_s: float) -> Message:
        node, process = self._connect()
        request = Request(_apis[type(body)], version, 0, name, body)
        # A heartbeat of the consumer protocol that is overtaken by the next one takes its answer along, and nobody
        # says it again; so its sender hangs up, and the broker ends what has come over that connection.
        hangs_up = isinstance(body, ConsumerGroupHeartbeatRequest) or self._world.draws_cancel()
        work = node.handle(request, Client(name, LISTENER))
        return await self._run_in_process(process, work, patience_s, lambda: hangs_up)


class GroupWorld:
    """All there is in one run."""

    def __init__(self, scenario: GroupScenario, loop: SimLoop, history: GroupHistory, tally: Tally) -> None:
        self.scenario = scenario
        self.loop = loop
        self.history = history
        self.tally = tally
        self.random = Chance(f"group world {scenario.seed}")
        self.chaos = Chaos(loop, self.random, scenario.processes, history, tally)
        self.invariants = GroupInvariants(history.note)
        self._meta = ObservedMeta(SimClock(loop))
        self._meta.observer = self.invariants.changed
        self._wire = Wire("meta", loop, self.random, scenario.meta, scenario.watches, self.chaos, history, tally)
        self._last_offset = 0
        self.topics: dict[str, TopicRecord] = {}
        self.violations: list[Violation] = []
        """What clients met and no rule over the history would see."""
        self.ending = False
        """Clients stop at the next occasion."""
        self.healed = False
        self.machines = [GroupMachine(number, self) for number in range(scenario.nodes)]

    async def start(self) -> None:
        for name in TOPICS:
            self.create_topic(name)
        self.chaos.start(self._crashed)
        for machine in self.machines:
            machine.start()
        while not all(machine.is_up for machine in self.machines):
            await self.loop.sleep(0.05)

    def is_agreed(self) -> bool:
        """Whether all nodes see the same nodes."""
        views = [machine.node.membership.view.nodes if machine.node is not None else () for machine in self.machines]
        return len(views[0]) == len(self.machines) and all(view == views[0] for view in views)

    def heal(self) -> None:
        """Nothing fails from now on, and all who are frozen wake; what is late still arrives."""
        self.history.note("heal")
        self.healed = True
        self.chaos.heal()
        self._wire.heal()
        for machine in self.machines:
            if machine.process is not None and machine.process.paused:
                self.loop.resume(machine.process)

    def create_topic(self, name: str) -> None:
        topic_id = TopicId(f"{self.random.getrandbits(128):032x}")
        self._put_topic(TopicRecord(name, topic_id, self.scenario.partitions, "memory", 0))

    def grow_topic(self, name: str) -> None:
        topic = self.topics[name]
        self.history.note(f"topic {name} grows to {topic.partitions + 1}")
        self._put_topic(msgspec.structs.replace(topic, partitions=topic.partitions + 1))

    def _put_topic(self, topic: TopicRecord) -> None:
        self.topics[topic.name] = topic
        at_once(self._meta.put(keys.topic(topic.name), msgspec.json.encode(topic)))

    def slots(self) -> list[Slot]:
        return [Slot(topic.name, number) for topic in self.topics.values() for number in range(topic.partitions)]

    def slots_by_id(self) -> dict[tuple[str, int], Slot]:
        return {(self.topics[slot.topic].topic_id, slot.partition): slot for slot in self.slots()}

    def new_offset(self) -> int:
        """One that was never committed before."""
        self._last_offset += 1
        return self._last_offset

    def draws_cancel(self) -> bool:
        return self.random.random() < self.scenario.processes.cancels

    def machine_at(self, address: Address) -> GroupMachine:
        return self.machines[address.port]

    def meta_for_a_process(self) -> GroupMeta:
        return GroupMeta(self._meta, self.scenario.transact, self._wire)

    def _crashed(self, process: Process) -> None:
        for machine in self.machines:
            machine.crashed(process)
