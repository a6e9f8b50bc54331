"""Clients of groups: they look for the coordinator, ask it, and heed its error codes as real clients do.

Everything that a rule looks at is written to the history, as the client saw it. Here are the requests that all kinds
of clients make, and those clients that are in no group; members are in `group_members`.
"""

from __future__ import annotations

from catena.cluster.view import Address
from catena.wire.codes import Code
from catena.wire.messages import offset_commit as commits
from catena.wire.messages import offset_delete as deletes
from catena.wire.messages import offset_fetch as fetches
from catena.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from catena.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from catena.wire.schema import Message
from sim.group_cluster import GroupMachine, GroupWorld
from sim.group_history import NOTHING, SIMPLE, Commit, Fetch, Removal, Slot
from sim.history import Outcome
from sim.loop import Chance
from sim.machine import NoAnswer, NotConnected

REFUSALS = frozenset(
    {
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
        Code.REBALANCE_IN_PROGRESS,
        Code.FENCED_INSTANCE_ID,
        Code.STALE_MEMBER_EPOCH,
        Code.GROUP_ID_NOT_FOUND,
        Code.NON_EMPTY_GROUP,
        Code.GROUP_SUBSCRIBED_TO_TOPIC,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Answers of the group itself: nothing was done. All others may come after it was done."""
ELSEWHERE = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE})
"""Answers after which a client looks for the coordinator again."""


class GroupClient:
    def __init__(self, world: GroupWorld, name: str, group: str) -> None:
        self.world = world
        self.history = world.history
        self.name = name
        self.group = group
        self.random = Chance(f"{name} of group seed {world.scenario.seed}")
        self.machine: GroupMachine | None = None
        """Where the coordinator was found."""

    def draws(self, chance: float) -> bool:
        return self.random.random() < chance

    async def sleep(self, mean_s: float) -> None:
        await self.world.loop.sleep(2 * mean_s * self.random.random())

    async def ask(self, body: Message, version: int, patience_s: float | None = None) -> Message | None:
        """None: there was no answer, or nobody to ask."""
        machine = self.machine or await self._find()
        if machine is None:
            return None
        return await self.ask_at(machine, body, version, patience_s)

    async def ask_at(
        self, machine: GroupMachine, body: Message, version: int, patience_s: float | None = None
    ) -> Message | None:
        try:
            return await machine.call(self.name, body, version, patience_s or self.random.choice((1.0, 4.0)))
        except (NotConnected, NoAnswer):
            self.machine = None
            return None

    def heed(self, code: int) -> None:
        if code in ELSEWHERE:
            self.machine = None

    async def _find(self) -> GroupMachine | None:
        machine = self.random.choice(self.world.machines)
        answer = await self.ask_at(machine, FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
        if not isinstance(answer, FindCoordinatorResponse):
            return None
        (found,) = answer.coordinators
        if found.error_code == Code.NONE:
            self.machine = self.world.machine_at(Address(found.host, found.port))
        return self.machine

    def _long_patience(self) -> float:
        """Sometimes long enough to hear from a node that was frozen meanwhile."""
        return self.random.choice((1.0, 4.0, 20.0))

    def some_slots(self) -> list[Slot]:
        slots = self.world.slots()
        return self.random.sample(slots, self.random.randint(1, min(3, len(slots))))

    async def commit(
        self, slots: list[Slot], member: str = "", generation: int = SIMPLE, instance: str | None = None
    ) -> int | None:
        """Returns the code that it was answered with, None where no answer came."""
        offsets = {slot: self.world.new_offset() for slot in slots}
        ask = Commit(self.group, self.name, offsets=offsets, member=member, generation=generation)
        shown = ", ".join(f"{slot}={offset}" for slot, offset in offsets.items())
        self.history.begin(ask, f"commit {shown} as {member or 'nobody'} of {generation}")
        body = commits.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[
                commits.OffsetCommitRequestTopic(
                    name=slot.topic,
                    partitions=[
                        commits.OffsetCommitRequestPartition(partition_index=slot.partition, committed_offset=offset)
                    ],
                )
                for slot, offset in offsets.items()
            ],
        )
        answer = await self.ask(body, 9, self._long_patience())
        code = answer.topics[0].partitions[0].error_code if isinstance(answer, commits.OffsetCommitResponse) else None
        self.heed(code or 0)
        refused = Outcome.FAILED if code in REFUSALS else Outcome.UNKNOWN
        self.history.end(ask, Outcome.OK if code == Code.NONE else refused, _shown(code))
        return code

    async def fetch(self, slots: list[Slot], machine: GroupMachine | None = None) -> bool:
        """From the coordinator, or from this node whatever it is; whether it was answered."""
        ask = self.history.begin(Fetch(self.group, self.name), f"fetch {', '.join(map(str, slots))}")
        body = fetches.OffsetFetchRequest(
            groups=[
                fetches.OffsetFetchRequestGroup(
                    group_id=self.group,
                    topics=[
                        fetches.OffsetFetchRequestTopics(name=slot.topic, partition_indexes=[slot.partition])
                        for slot in slots
                    ],
                )
            ]
        )
        patience_s = self._long_patience()
        answer = await (self.ask(body, 9, patience_s) if machine is None else self.ask_at(machine, body, 9, patience_s))
        if not isinstance(answer, fetches.OffsetFetchResponse):
            self.history.end(ask, Outcome.FAILED, "no answer")
            return False
        (group,) = answer.groups
        codes = [group.error_code, *(topic.partitions[0].error_code for topic in group.topics)]
        if any(codes):
            self.heed(group.error_code)
            self.history.end(ask, Outcome.FAILED, _shown(max(codes)))
            return False
        told = [topic.partitions[0].committed_offset for topic in group.topics]
        ask.offsets = dict(zip(slots, told, strict=True))
        shown = ", ".join(f"{slot}={'-' if offset == NOTHING else offset}" for slot, offset in ask.offsets.items())
        self.history.end(ask, Outcome.OK, shown)
        return True

    async def delete_group(self) -> None:
        ask = self.history.begin(Removal(self.group, self.name), "delete the group")
        answer = await self.ask(DeleteGroupsRequest(groups_names=[self.group]), 2)
        code = answer.results[0].error_code if isinstance(answer, DeleteGroupsResponse) else None
        self._removed(ask, code)

    async def delete_offsets(self, slots: list[Slot]) -> None:
        ask = Removal(self.group, self.name, slots=tuple(slots))
        self.history.begin(ask, f"delete offsets of {', '.join(map(str, slots))}")
        by_topic: dict[str, list[int]] = {}
        for slot in slots:
            by_topic.setdefault(slot.topic, []).append(slot.partition)
        body = deletes.OffsetDeleteRequest(
            group_id=self.group,
            topics=[
                deletes.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[deletes.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
                )
                for topic, numbers in by_topic.items()
            ],
        )
        answer = await self.ask(body, 0)
        code = None
        if isinstance(answer, deletes.OffsetDeleteResponse):
            told = [partition.error_code for topic in answer.topics for partition in topic.partitions]
            code = answer.error_code or max(told, default=0)
        self._removed(ask, code)

    def _removed(self, ask: Removal, code: int | None) -> None:
        self.heed(code or 0)
        refused = Outcome.FAILED if code in REFUSALS else Outcome.UNKNOWN
        self.history.end(ask, Outcome.OK if code == Code.NONE else refused, _shown(code))


def _shown(code: int | None) -> str:
    return "no answer" if code is None else Code(code).name


async def commit_now_and_then(client: GroupClient) -> None:
    """Somebody outside of the protocol, who commits and looks what is committed."""
    while not client.world.ending:
        if client.draws(0.7):
            while await client.commit(client.some_slots()) != Code.NONE and not client.world.ending:
                await client.sleep(0.1 if client.machine is not None else 0.4)
        else:
            await client.fetch(client.some_slots())
        await client.sleep(0.6)


async def read_anywhere(client: GroupClient, groups: list[str]) -> None:
    while not client.world.ending:
        client.group, client.machine = client.random.choice(groups), None
        await client.fetch(client.some_slots(), client.random.choice((None, *client.world.machines)))
        await client.sleep(0.6)


async def delete_now_and_then(client: GroupClient, groups: list[str]) -> None:
    while not client.world.healed:
        await client.sleep(1.5)
        client.group, client.machine = groups[0] if client.draws(0.5) else client.random.choice(groups), None
        if client.draws(0.6):
            await client.delete_group()
        else:
            await client.delete_offsets(client.some_slots())


async def move_now_and_then(client: GroupClient) -> None:
    """Nodes leave and come back, and groups move with them."""
    while not client.world.healed:
        await client.sleep(4.0)
        machine = client.random.choice(client.world.machines)
        if await machine.stop():
            await client.sleep(2.0)
            machine.start()


async def grow_now_and_then(client: GroupClient) -> None:
    while not client.world.healed:
        await client.sleep(6.0)
        if len(client.world.slots()) < 8:
            client.world.grow_topic(client.random.choice(list(client.world.topics)))
