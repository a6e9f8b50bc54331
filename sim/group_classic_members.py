"""Members of classic groups: join, sync, heartbeat, commit, leave; some are slow, some die, some come back."""

from __future__ import annotations

from catena.wire.codes import Code
from catena.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from catena.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from catena.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from catena.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sim.group_cluster import GroupWorld
from sim.group_history import Join, Slot, Sync
from sim.group_members import Member
from sim.history import Outcome

PROTOCOL = "range"
NOT_JOINED = -1


class ClassicMember(Member):
    def __init__(self, world: GroupWorld, name: str, group: str) -> None:
        super().__init__(world, name, group)
        self.member = ""
        self.generation = NOT_JOINED
        self.former = ("", NOT_JOINED)
        """What it was before the last rebalance: a commit may still be under way."""
        self.leads_over: list[Slot] | None = None
        """As the leader: all that it has shared out."""

    @property
    def who(self) -> str:
        return self.instance or self.member

    @property
    def round(self) -> int | None:
        return None if self.generation == NOT_JOINED else self.generation

    async def live(self) -> None:
        await self.sleep(0.5)
        while self.alive and not self.world.ending:
            if self.generation == NOT_JOINED:
                await self._join()
                await self.sleep(0.05 if self.machine is not None else 0.4)
            else:
                await self.sleep(self.world.scenario.session_s / 8)
                await self._act()

    async def _act(self) -> None:
        if not self.is_well and self.draws(0.1):
            await self._falter()
            return
        await self._heartbeat()
        if self.generation != NOT_JOINED and self.draws(0.4):
            await self.commit_own()
        if self.former[1] != NOT_JOINED and self.draws(0.15):
            await self.commit(self.some_slots(), *self.former, self.instance)
        if self.leads_over is not None and self.leads_over != self.world.slots():
            self._rejoin()  # a topic has more partitions than it knew

    async def commit_own(self) -> bool:
        code = await self.commit(list(self.held) or self.some_slots(), self.member, self.generation, self.instance)
        self._heed_member(code)
        return code == Code.NONE

    async def _join(self) -> None:
        scenario = self.world.scenario
        ask = self.history.begin(Join(self.group, self.name), f"join as {self.member or 'new'}")
        body = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=int(scenario.session_s * 1000),
            rebalance_timeout_ms=int(scenario.rebalance_s * 1000),
            member_id=self.member,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"")],
        )
        answer = await self.ask(body, 9, scenario.rebalance_s + 10.0)
        if not isinstance(answer, JoinGroupResponse):
            self.history.end(ask, Outcome.UNKNOWN, "no answer")
            return
        code = Code(answer.error_code)
        if code is not Code.NONE:
            self.history.end(ask, Outcome.FAILED, code.name)
            if code is Code.MEMBER_ID_REQUIRED:
                self.member = answer.member_id
            self._heed_member(code)
            return
        self.member = answer.member_id
        ask.member, ask.generation, ask.leader = self.who, answer.generation_id, _canonical(answer.leader)
        ask.members = tuple(sorted(member.group_instance_id or member.member_id for member in answer.members))
        self.history.end(ask, Outcome.OK, f"{self.member} of {ask.generation}, {ask.leader} leads {ask.members}")
        await self._sync(answer)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        leads = joined.leader == joined.member_id
        all_slots = self.world.slots()
        assignments = []
        if leads and not joined.skip_assignment:
            shares = _share([member.member_id for member in joined.members], all_slots)
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=_encode(share))
                for member, share in shares.items()
            ]
        ask = Sync(self.group, self.name, member=self.who, generation=joined.generation_id)
        self.history.begin(ask, f"sync {self.member} of {joined.generation_id}")
        body = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        answer = await self.ask(body, 5, self.world.scenario.rebalance_s + 10.0)
        if not isinstance(answer, SyncGroupResponse):
            self.history.end(ask, Outcome.UNKNOWN, "no answer")
        elif answer.error_code != Code.NONE:
            self.history.end(ask, Outcome.FAILED, Code(answer.error_code).name)
            self._heed_member(answer.error_code)
        else:
            self.held = ask.slots = _decode(bytes(answer.assignment))
            self.generation = joined.generation_id
            self.rounds.append(self.generation)
            # One that came back and skipped the assignment can't tell for what topics its former self had made it.
            knows = not joined.skip_assignment or not self.world.scenario.growers
            self.leads_over = (all_slots if knows else []) if leads else None
            self.history.end(ask, Outcome.OK, " ".join(map(str, self.held)))

    async def _heartbeat(self) -> None:
        body = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member,
            group_instance_id=self.instance,
        )
        answer = await self.ask(body, 4)
        if isinstance(answer, HeartbeatResponse) and answer.error_code != Code.NONE:
            code = Code(answer.error_code)
            self.history.note(f"{self.name} {self.group} heartbeat {self.member} of {self.generation}: {code.name}")
            if code is Code.REBALANCE_IN_PROGRESS and self.draws(0.3):
                await self.commit_own()
            self._heed_member(code)

    async def _leave(self) -> None:
        left = MemberIdentity(member_id=self.member, group_instance_id=self.instance)
        answer = await self.ask(LeaveGroupRequest(group_id=self.group, members=[left]), 5)
        code = Code(answer.error_code).name if isinstance(answer, LeaveGroupResponse) else "no answer"
        self.history.note(f"{self.name} {self.group} left: {code}")
        self._forget()

    async def _restart(self) -> None:
        self._forget()

    def _heed_member(self, code: int | None) -> None:
        self.heed(code or 0)
        if code in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION):
            self._rejoin()
        elif code == Code.UNKNOWN_MEMBER_ID:
            self._forget()
        elif code == Code.FENCED_INSTANCE_ID:
            self.history.note(f"{self.name} {self.group} is fenced")
            self.alive = self.is_well
            self._forget()

    def _rejoin(self) -> None:
        if self.generation != NOT_JOINED:
            self.former = (self.member, self.generation)
        self.generation = NOT_JOINED
        self.held, self.leads_over = (), None

    def _forget(self) -> None:
        self._rejoin()
        self.member = ""


def _canonical(member_id: str) -> str:
    """The instance id of a static member: its member ids begin with it, and it starts with an `i`."""
    return member_id.split("-")[0] if member_id.startswith("i") else member_id


def _share(members: list[str], slots: list[Slot]) -> dict[str, list[Slot]]:
    ordered = sorted(members)
    return {member: slots[at :: len(ordered)] for at, member in enumerate(ordered)}


def _encode(slots: list[Slot]) -> bytes:
    return " ".join(f"{slot.topic} {slot.partition}" for slot in slots).encode()


def _decode(assignment: bytes) -> tuple[Slot, ...]:
    words = assignment.decode().split()
    return tuple(Slot(topic, int(number)) for topic, number in zip(words[::2], words[1::2], strict=True))
