"""Any order of heartbeats, lost answers, time-outs, topic changes and crashes keeps a consumer group's promises.

Above all: no partition is read by two members at the same time, where a member reads what it was told from the answer
on, and until it has let go of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from catena.groups.assignors import Slot
from catena.groups.base import Effect, GroupError, GroupSettings, Persist, Reply
from catena.groups.consumer import ConsumerGroup
from catena.groups.consumer_member import MemberState, to_assignment, to_slots
from catena.groups.consumer_values import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse, ConsumerSnapshot
from tests.groups.consumer_world import topics

SESSION_S = 45.0
REBALANCE_S = 20.0
CLIENTS = st.integers(0, 3)
LOST = st.sampled_from([False, False, True])
NAMES = st.sampled_from([("t",), ("u",), ("t", "u")])


@dataclass
class Client:
    member_id: str
    instance_id: str | None
    names: tuple[str, ...] = ("t", "u")
    epoch: int = 0
    target: frozenset[Slot] = frozenset()
    """What the last answer assigned to it."""

    reads: set[Slot] = field(default_factory=set)
    acked: frozenset[Slot] | None = None
    """What it has last reported; None when it must send everything again."""

    incarnation: int = 0
    heard_at: float = 0.0

    def abandon(self) -> None:
        self.reads.clear()
        self.epoch, self.target, self.acked = 0, frozenset(), None


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(pause=st.sampled_from([0.0, 0.5]), assignor=st.sampled_from([None, "range", "uniform"]))
    def begin(self, pause: float, assignor: str | None) -> None:
        self.settings = GroupSettings(assignment_pause_per_member_s=pause)
        self.assignor = assignor
        self.topics = topics(t=3, u=2)
        self.group = ConsumerGroup("g", self.settings, self.topics)
        self.clients = [Client(f"m{i}.0", f"i{i}" if i == 3 else None) for i in range(4)]
        self.now = 0.0
        self.stored: bytes | None = None
        self.crashes = False
        self.tickets = 0
        self.told_epoch = 0

    # Steps

    @rule(number=CLIENTS, lost=LOST)
    def beat(self, number: int, lost: bool) -> None:
        client = self.clients[number]
        full = client.epoch == 0 or client.acked is None
        owned = frozenset(client.reads)
        response = self.send(
            client,
            client.epoch,
            rebalance_timeout_ms=round(REBALANCE_S * 1000) if full else -1,
            topic_names=client.names if full else None,
            assignor=self.assignor,
            owned=to_assignment(owned) if full or owned != client.acked else None,
        )
        if response is None or lost:
            client.acked = None
        elif response.error is GroupError.NONE:
            client.acked = owned
            client.epoch = response.member_epoch
            if response.assignment is not None:
                client.target = to_slots(response.assignment)
                client.reads |= client.target
        elif response.error is not GroupError.UNRELEASED_INSTANCE_ID:
            client.abandon()

    @rule(order=st.permutations(range(4)))
    def all_beat(self, order: list[int]) -> None:
        """One alone seldom gets far: grants need others who come."""
        for number in order:
            self.beat(number, lost=False)
            self.no_partition_is_read_by_two()

    @rule(number=CLIENTS)
    def let_go(self, number: int) -> None:
        client = self.clients[number]
        client.reads &= client.target

    @rule(number=CLIENTS, names=NAMES)
    def subscribe(self, number: int, names: tuple[str, ...]) -> None:
        client = self.clients[number]
        client.names = names
        client.acked = None

    @rule(number=CLIENTS, lost=LOST)
    def leave(self, number: int, lost: bool) -> None:
        client = self.clients[number]
        client.abandon()
        if not lost:
            self.send(client, -1 if client.instance_id is None else -2)
        client.incarnation += 1
        client.member_id = f"m{number}.{client.incarnation}"

    @rule(seconds=st.sampled_from([0.1, 0.1, 3.0, 3.0, 15.0, 50.0]))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        ticks = 0
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.take(self.group.tick(self.now))
            self.abandon_what_time_has_taken()
            ticks += 1
            assert ticks < 200, "time does not get on"
        self.now = end
        self.abandon_what_time_has_taken()

    @rule(t=st.integers(0, 4), u=st.integers(1, 4))
    def change_topics(self, t: int, u: int) -> None:
        self.topics = topics(t=t, u=u) if t else topics(u=u)
        self.take(self.group.topics_changed(self.now, self.topics))

    @rule()
    def crash_at_next_persist(self) -> None:
        self.crashes = True

    @rule()
    def fail_over(self) -> None:
        self.crashes = False
        if self.stored is None:
            self.group = ConsumerGroup("g", self.settings, self.topics)
            return
        snapshot = msgspec.json.decode(self.stored, type=ConsumerSnapshot)
        self.group = ConsumerGroup.restore("g", snapshot, self.now, self.settings, self.topics)
        assert self.group.snapshot() == self.stored

    @rule()
    def settle(self) -> None:
        """When everybody does what it should and nothing fails, the group becomes stable with all assigned."""
        self.crashes = False
        for client in self.clients:
            client.acked = None
        self.wait(0.0)
        for _ in range(13):  # longer than a session, so that members who died without a word are gone
            for number in range(len(self.clients)):
                self.beat(number, lost=False)
                self.let_go(number)
            self.wait(6.0)
        assert all(client.epoch > 0 for client in self.clients)
        assert self.group.describe().state == "Stable"
        wanted = {name for client in self.clients for name in client.names}
        exist = {
            (info.topic_id, p) for name, info in self.topics.items() if name in wanted for p in range(info.partitions)
        }
        assert {slot for client in self.clients for slot in client.reads} == exist

    # What must be true

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        reads = [slot for client in self.clients for slot in client.reads]
        assert len(reads) == len(set(reads))

    @invariant()
    def owners_are_who_holds(self) -> None:
        holds = {slot: m.member_id for m in self.group._members.values() for slot in m.holds}
        assert self.group._owners == holds
        assert sum(len(m.holds) for m in self.group._members.values()) == len(holds)

    @invariant()
    def epochs_go_on_from_what_was_told(self) -> None:
        assert self.group.epoch >= self.group.assignment_epoch >= 0
        assert self.group.epoch >= self.told_epoch
        assert all(member.epoch <= self.group.assignment_epoch for member in self.group._members.values())

    @invariant()
    def every_member_has_a_deadline(self) -> None:
        assert self.group.is_empty or self.group.next_deadline() is not None

    # The shell

    def send(self, client: Client, epoch: int, **fields: object) -> ConsumerHeartbeatResponse | None:
        """None when the coordinator crashed on it."""
        self.tickets += 1
        values = {"member_id": client.member_id, "member_epoch": epoch, "instance_id": client.instance_id, **fields}
        request = msgspec.convert({**values, "fresh_id": f"fresh{self.tickets}"}, ConsumerHeartbeatRequest)
        effects = self.group.heartbeat(self.now, self.tickets, request)
        if not self.take(effects):
            return None
        client.heard_at = self.now
        reply = effects[-1]
        assert isinstance(reply, Reply)
        assert reply.ticket == self.tickets
        assert isinstance(reply.response, ConsumerHeartbeatResponse)
        if reply.response.error is GroupError.NONE:
            self.told_epoch = max(self.told_epoch, reply.response.member_epoch)
        return reply.response

    def take(self, effects: list[Effect]) -> bool:
        if Persist() in effects:
            assert effects[0] == Persist()
            if self.crashes:
                self.fail_over()
                return False
            self.stored = self.group.snapshot()
        return True

    def abandon_what_time_has_taken(self) -> None:
        """A member whose session or rebalance time-out has passed knows it, and stops to read by itself."""
        for client in self.clients:
            if client.epoch and client.member_id not in self.group._members:
                silent = self.now - client.heard_at >= SESSION_S - 0.001
                holds_on = bool(client.reads - client.target) or frozenset(client.reads) != client.acked
                assert silent or holds_on, "removed for no reason"
                client.abandon()


def test_members_of_the_machine_can_be_in_every_state() -> None:
    """The machine is worth something only if it gets there."""
    seen: set[MemberState] = set()

    class Watching(ConsumerGroupMachine):
        @invariant()
        def watch(self) -> None:
            seen.update(member.state for member in self.group._members.values())

    machine = Watching.TestCase
    machine.settings = settings(max_examples=20, stateful_step_count=40, deadline=None, derandomize=True)
    machine("runTest").runTest()
    assert seen == set(MemberState)


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
