"""Any order of requests, time-outs, failovers and crashes keeps a classic group's promises.

Each step is one request of one of a few clients, some time, or a new coordinator. A crash takes the coordinator at its
next Persist: the snapshot is not stored, and no reply behind it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from catena.groups.base import Effect, GroupError, GroupSettings, Persist, Reply, Response
from catena.groups.classic import ClassicGroup
from catena.groups.classic_values import (
    ClassicSnapshot,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    Protocol,
    SyncRequest,
    SyncResponse,
)
from tests.groups.classic_world import subscription

WISHES = [
    (Protocol("range", subscription("t")), Protocol("sticky", b"1")),
    (Protocol("sticky", b"2"), Protocol("range", subscription("t"))),
    (Protocol("range", subscription("t", "u")),),
]


@dataclass
class Client:
    number: int
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    everybody: list[str] = field(default_factory=list)
    """The member ids to assign to, while it leads."""


CLIENTS = st.integers(0, 4)


class ClassicGroupMachine(RuleBasedStateMachine):
    @initialize(delay=st.sampled_from([0.0, 1.0]), max_members=st.sampled_from([3, 10]))
    def begin(self, delay: float, max_members: int) -> None:
        self.settings = GroupSettings(
            initial_rebalance_delay_s=delay, max_members=max_members, new_member_join_timeout_s=40.0
        )
        self.group = ClassicGroup("g", self.settings)
        self.clients = [Client(i, f"i{i}" if i in (3, 4) else None) for i in range(5)]
        self.now = 0.0
        self.stored: bytes | None = None
        self.crashes = False
        self.tickets = 0
        self.open: dict[int, Client | None] = {}
        self.told_generation = 0
        self.protocols: dict[int, str | None] = {}
        self.assigned: dict[int, dict[str, bytes]] = {}

    # Steps

    @rule(number=CLIENTS, wish=st.sampled_from(WISHES), known=st.booleans(), skip=st.booleans())
    def join(self, number: int, wish: tuple[Protocol, ...], known: bool, skip: bool) -> None:
        client = self.clients[number]
        request = JoinRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id="same",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=wish,
            require_known_member_id=known,
            can_skip_assignment=skip,
            fresh_hex=f"{self.tickets:x}",
        )
        self.take(self.group.join(self.now, self.ticket(client), request))

    @rule(number=CLIENTS)
    def restart(self, number: int) -> None:
        """The process dies without a word; its instance id, if it has one, comes back with no member id."""
        client = self.clients[number]
        client.member_id, client.generation, client.everybody = "", -1, []
        self.open = {ticket: None if owner is client else owner for ticket, owner in self.open.items()}

    @rule(number=CLIENTS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        payload = {member_id: f"{client.generation}/{member_id}".encode() for member_id in client.everybody}
        request = SyncRequest(
            member_id=client.member_id or "ghost",
            generation=client.generation,
            instance_id=client.instance_id,
            protocol=client.protocol,
            assignments=tuple(payload.items()),
        )
        self.take(self.group.sync(self.now, self.ticket(client), request))

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        request = HeartbeatRequest(
            member_id=client.member_id, generation=client.generation, instance_id=client.instance_id
        )
        self.take(self.group.heartbeat(self.now, self.ticket(client), request))

    @rule(numbers=st.lists(CLIENTS, min_size=1, max_size=3))
    def leave(self, numbers: list[int]) -> None:
        members = tuple(
            LeavingMember(member_id=self.clients[n].member_id, instance_id=self.clients[n].instance_id) for n in numbers
        )
        self.take(self.group.leave(self.now, self.ticket(None), members))

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 9.0, 40.0]))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        ticks = 0
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.take(self.group.tick(self.now))
            ticks += 1
            assert ticks < 200, "time does not get on"
        self.now = end

    @rule()
    def crash_at_next_persist(self) -> None:
        self.crashes = True

    @rule()
    def fail_over(self) -> None:
        """What was stored last counts; all who wait must ask the new coordinator."""
        self.open.clear()
        self.crashes = False
        if self.stored is None:
            self.group = ClassicGroup("g", self.settings)
            return
        snapshot = msgspec.json.decode(self.stored, type=ClassicSnapshot)
        self.group = ClassicGroup.restore("g", snapshot, self.now, self.settings)
        if snapshot.stable:
            assert self.group.describe().state == "Stable"
            assert len(self.group.describe().members) == len(snapshot.members)

    @rule()
    def settle(self) -> None:
        """When everybody does what it should and nothing fails, the group becomes stable, with everybody assigned."""
        self.crashes = False
        self.wait(41.0)  # the silent are gone, and no ticket waits
        assert not self.open
        for _ in range(6):
            for client in self.clients[: self.settings.max_members]:
                if client not in self.open.values():
                    self.join(client.number, WISHES[0], known=True, skip=False)
            self.wait(1.0)
        for client in self.clients[: self.settings.max_members]:
            self.sync(client.number)
        assert self.group.describe().state == "Stable"
        assert not self.open
        assert all(member.assignment for member in self.group.describe().members)
        assert len(self.group.describe().members) == min(len(self.clients), self.settings.max_members)

    # What must be true

    @invariant()
    def a_ticket_that_waits_has_a_deadline(self) -> None:
        waiting = [*self.group._joins.values(), *self.group._syncs.values()]
        assert sorted(waiting) == sorted(self.open), "a ticket was forgotten"
        assert not waiting or self.group.next_deadline() is not None

    @invariant()
    def generations_go_on_from_what_was_told(self) -> None:
        assert self.group.generation >= self.told_generation

    @invariant()
    def there_is_one_leader_while_there_are_members(self) -> None:
        roster = self.group._roster
        assert (roster.leader in roster.members) if roster.members else roster.leader is None

    @invariant()
    def all_members_support_the_protocol_of_their_generation(self) -> None:
        view = self.group.describe()
        if view.state in ("Stable", "CompletingRebalance"):
            for member in self.group._roster.members.values():
                assert self.group._protocol in [name for name, _ in member.protocols]

    @invariant()
    def states_and_members_agree(self) -> None:
        state = self.group.describe().state
        assert (state == "Empty") <= (not self.group._roster.members)
        assert not self.group._joins or state == "PreparingRebalance"
        assert not self.group._syncs or state == "CompletingRebalance"
        assert len(self.group._roster) <= self.settings.max_members

    @invariant()
    def a_snapshot_is_restored_to_the_same_snapshot(self) -> None:
        data = self.group.snapshot()
        snapshot = msgspec.json.decode(data, type=ClassicSnapshot)
        again = ClassicGroup.restore("g", snapshot, self.now, self.settings)
        assert again.generation == self.group.generation
        assert [m.member_id for m in again.describe().members] == [m.member_id for m in snapshot.members]

    # The shell

    def ticket(self, client: Client | None) -> int:
        self.tickets += 1
        self.open[self.tickets] = client
        return self.tickets

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                if self.crashes:
                    self.fail_over()
                    return
                self.stored = self.group.snapshot()
            else:
                assert isinstance(effect, Reply)
                client = self.open.pop(effect.ticket)
                self.check(effect.response)
                if client is not None:
                    self.tell(client, effect.response)

    def check(self, response: Response) -> None:
        if response.error is not GroupError.NONE:
            return
        if isinstance(response, JoinResponse):
            assert self.stored is not None, "told before it was stored"
            assert msgspec.json.decode(self.stored, type=ClassicSnapshot).generation >= response.generation
            assert response.generation >= self.told_generation
            self.told_generation = response.generation
            assert self.protocols.setdefault(response.generation, response.protocol) == response.protocol
            assert not response.members or response.leader == response.member_id
            if response.members:
                assert response.member_id in [member.member_id for member in response.members]

    def tell(self, client: Client, response: Response) -> None:
        if isinstance(response, JoinResponse):
            if response.error in (GroupError.NONE, GroupError.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
            if response.error is GroupError.NONE:
                assert response.generation >= client.generation
                client.generation, client.protocol = response.generation, response.protocol
                skip = response.skip_assignment
                client.everybody = [] if skip else [member.member_id for member in response.members]
        if isinstance(response, SyncResponse) and response.error is GroupError.NONE and response.assignment:
            generation, _, owner = response.assignment.decode().partition("/")
            assert int(generation) == client.generation == self.group.generation
            assert owner == client.member_id or client.instance_id is not None
            told = self.assigned.setdefault(client.generation, {})
            assert told.setdefault(owner, response.assignment) == response.assignment
        if isinstance(response, JoinResponse | SyncResponse | HeartbeatResponse) and response.error in (
            GroupError.UNKNOWN_MEMBER_ID,
            GroupError.FENCED_INSTANCE_ID,
        ):
            client.member_id, client.generation, client.everybody = "", -1, []


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
