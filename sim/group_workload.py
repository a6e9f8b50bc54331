"""Who does what in a group seed: a storm, healing, and then all must be well. Or a calm, and one incident in it.

After healing every group becomes stable within bounded time, its live members share out all partitions, and all who
commit are acked. In a calm seed the incident costs nobody a rebalance: a stable group survives its coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sim.checker import Violation
from sim.group_clients import (
    GroupClient,
    commit_now_and_then,
    delete_now_and_then,
    grow_now_and_then,
    move_now_and_then,
    read_anywhere,
)
from sim.group_cluster import GroupMachine, GroupWorld
from sim.group_consumers import ConsumerMember
from sim.group_members import NOT_JOINED, ClassicMember
from sim.group_scenario import Incident
from sim.stores import LATE_S, TIMEOUT_S

SIMPLE_GROUP = "simple"
SETTLED_S = 90.0
"""After healing, all groups are stable within this time: those who died have been missed, twice at the worst."""
LOOK_S = 0.25
STOPPED_S = 5.0
"""Longer than a member's session in a calm seed, shorter than its node's."""
ANSWERED_S = 30.0


class Groups:
    """The members of one seed, by group."""

    def __init__(self, world: GroupWorld) -> None:
        scenario = world.scenario
        self.world = world
        self.classic = {
            f"classic{number}": [
                ClassicMember(world, f"c{number}m{at}", f"classic{number}") for at in range(scenario.members)
            ]
            for number in range(scenario.classic_groups)
        }
        self.consumer: dict[str, list[ConsumerMember]] = {}
        for number in range(scenario.consumer_groups):
            members: list[ConsumerMember] = []
            members += [
                ConsumerMember(world, f"k{number}m{at}", f"consumer{number}", members) for at in range(scenario.members)
            ]
            self.consumer[f"consumer{number}"] = members

    @property
    def names(self) -> list[str]:
        return [SIMPLE_GROUP, *self.classic, *self.consumer]

    def clients(self) -> list[Coroutine[Any, Any, None]]:
        world, scenario = self.world, self.world.scenario
        live = [member.live() for members in self.classic.values() for member in members]
        live += [member.live() for members in self.consumer.values() for member in members]
        live += [
            commit_now_and_then(GroupClient(world, f"s{number}", SIMPLE_GROUP))
            for number in range(scenario.simple_committers)
        ]
        live += [read_anywhere(GroupClient(world, f"r{at}", ""), self.names) for at in range(scenario.readers)]
        live += [delete_now_and_then(GroupClient(world, f"d{at}", ""), self.names) for at in range(scenario.deleters)]
        live += [move_now_and_then(GroupClient(world, f"v{at}", "")) for at in range(scenario.movers)]
        live += [grow_now_and_then(GroupClient(world, f"g{at}", "")) for at in range(scenario.growers)]
        return live

    def unsettled(self) -> str:
        """The first thing that is not as it should be in the long run; empty if there is none."""
        for group, members in self.classic.items():
            alive = [member for member in members if member.alive]
            generations = sorted({member.generation for member in alive})
            if len(generations) > 1 or NOT_JOINED in generations:
                return f"{group} has its members in generations {generations}"
            if alive and sorted(slot for member in alive for slot in member.slots) != self.world.slots():
                return f"{group} does not read every partition once: {[member.slots for member in alive]}"
        for group, consumers in self.consumer.items():
            living = [member for member in consumers if member.alive]
            epochs = sorted({member.epoch for member in living})
            if len(epochs) > 1 or 0 in epochs:
                return f"{group} has its members in epochs {epochs}"
            if living and sorted(slot for member in living for slot in member.held) != self.world.slots():
                return f"{group} does not read every partition once: {[member.held for member in living]}"
        return ""

    def members(self) -> list[ClassicMember | ConsumerMember]:
        classic = [member for members in self.classic.values() for member in members if member.alive]
        return [*classic, *(member for members in self.consumer.values() for member in members if member.alive)]


async def run(world: GroupWorld) -> None:
    groups = Groups(world)
    await world.start()
    tasks = [world.loop.create_task(each) for each in groups.clients()]
    if world.scenario.incident is None:
        await world.loop.sleep(world.scenario.storm_s)
    else:
        while not world.is_agreed():
            await world.loop.sleep(LOOK_S)
        await world.loop.sleep(world.scenario.session_s)
        await _settle(groups)
        await _befall(groups, world.scenario.incident)
    world.heal()
    await world.loop.sleep(LATE_S + TIMEOUT_S if world.scenario.meta.late else 1.0)
    await _settle(groups)
    await _look_at_everything(groups)
    world.ending = True
    for task in tasks:
        await task


async def _settle(groups: Groups) -> None:
    world = groups.world
    deadline = world.loop.time() + SETTLED_S
    while groups.unsettled() and world.loop.time() < deadline:
        await world.loop.sleep(LOOK_S)
    if trouble := groups.unsettled():
        world.violations.append(Violation("liveness", f"{SETTLED_S:.0f} s after all is well, {trouble}"))
    world.history.note("settled")


async def _befall(groups: Groups, incident: Incident) -> None:
    """The coordinator of the classic group is struck; nobody may notice more than a moment without answers."""
    world = groups.world
    machine = await _coordinator(groups)
    world.history.note(f"incident: {incident.value} of {machine.name}")
    before = {member.name: _rounds(member) for member in groups.members()}
    if incident is Incident.DEATH:
        machine.kill()
    elif incident is Incident.STOP:
        process = machine.process
        assert process is not None
        world.loop.pause(process)
        await world.loop.sleep(STOPPED_S)
        world.loop.resume(process)
    elif await machine.stop():
        machine.start()
    await world.loop.sleep(3 * world.scenario.session_s)
    for member in groups.members():
        if _rounds(member) > before[member.name]:
            cost = f"{_rounds(member) - before[member.name]} rebalances of {member.name} in {member.group}"
            world.violations.append(Violation("failover", f"the {incident.value} of a coordinator cost {cost}"))


def _rounds(member: ClassicMember | ConsumerMember) -> int:
    return len(member.generations) if isinstance(member, ClassicMember) else len(member.epochs)


async def _coordinator(groups: Groups) -> GroupMachine:
    client = GroupClient(groups.world, "host", next(iter(groups.classic)))
    while client.machine is None:
        await client.fetch(groups.world.slots())
        await client.sleep(LOOK_S)
    return client.machine


async def _look_at_everything(groups: Groups) -> None:
    world = groups.world
    for member in groups.members():
        await _within_bounds(world, f"{member.name} commits in {member.group}", member.commit_own)
    for group in groups.names:
        client = GroupClient(world, f"last look at {group}", group)
        await _within_bounds(world, f"somebody fetches from {group}", partial(client.fetch, world.slots()))
    client = GroupClient(world, "last committer", SIMPLE_GROUP)

    async def commit() -> bool:
        return await client.commit(world.slots()) == 0

    await _within_bounds(world, "somebody commits in no group", commit)
    await client.fetch(world.slots())


async def _within_bounds(world: GroupWorld, what: str, attempt: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    deadline = world.loop.time() + ANSWERED_S
    while not await attempt():
        if world.loop.time() > deadline:
            world.violations.append(Violation("liveness", f"after healing it never happens that {what}"))
            return
        await world.loop.sleep(LOOK_S)
