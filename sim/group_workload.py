"""Who does what in a group seed: a storm, healing, and then all must be well. Or a calm, and one incident in it.

After healing every group becomes stable within bounded time, its live members share out all partitions, and all who
commit are acked. In a calm seed the incident costs nobody a rebalance: a stable group survives its coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sim.checker import Violation
from sim.group_classic_members import ClassicMember
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
from sim.group_members import Member
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
        self._members: dict[str, list[Member]] = {}
        for number in range(scenario.classic_groups):
            group = f"classic{number}"
            self._members[group] = [ClassicMember(world, f"c{number}m{at}", group) for at in range(scenario.members)]
        for number in range(scenario.consumer_groups):
            group, consumers = f"consumer{number}", list[ConsumerMember]()
            consumers += [ConsumerMember(world, f"k{number}m{at}", group, consumers) for at in range(scenario.members)]
            self._members[group] = [*consumers]

    @property
    def names(self) -> list[str]:
        return [SIMPLE_GROUP, *self._members]

    def clients(self) -> list[Coroutine[Any, Any, None]]:
        world, scenario = self.world, self.world.scenario
        live = [member.live() for members in self._members.values() for member in members]
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
        for group, members in self._members.items():
            alive = [member for member in members if member.alive]
            rounds = [member.round for member in alive]
            if None in rounds or len(set(rounds)) > 1:
                return f"{group} has its members in the generations or epochs {rounds}"
            if alive and sorted(slot for member in alive for slot in member.held) != self.world.slots():
                return f"{group} does not read every partition once: {[member.held for member in alive]}"
        return ""

    def alive(self) -> list[Member]:
        return [member for members in self._members.values() for member in members if member.alive]


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
    """The coordinator of the first group is struck; nobody may notice more than a moment without answers."""
    world = groups.world
    machine = await _coordinator(groups)
    world.history.note(f"incident: {incident.value} of {machine.name}")
    before = {member.name: len(member.rounds) for member in groups.alive()}
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
    for member in groups.alive():
        if len(member.rounds) > before[member.name]:
            cost = f"{len(member.rounds) - before[member.name]} rebalances of {member.name} in {member.group}"
            world.violations.append(Violation("failover", f"the {incident.value} of a coordinator cost {cost}"))


async def _coordinator(groups: Groups) -> GroupMachine:
    client = GroupClient(groups.world, "host", groups.alive()[0].group)
    while client.machine is None:
        await client.fetch(groups.world.slots())
        await client.sleep(LOOK_S)
    return client.machine


async def _look_at_everything(groups: Groups) -> None:
    world = groups.world
    for member in groups.alive():
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
