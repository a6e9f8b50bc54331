"""The clients of the log scenario, in bursts an hour apart, and jobs that work on what they write.

Several drivers race on the same partitions, and each may die or sleep for an hour at any step; another finishes or
abandons what was left. In the end all are awake again, everything that can be tiered is, and all of it is readable.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from catena.meta import keys
from catena.pipeline.tier_pass import SESSION_TTL_MS, PartitionReport
from catena.types import TopicId, TopicPartition
from sim.checker import Violation
from sim.clients import NOT_DONE, NOT_KNOWN, Client
from sim.pipeline_cluster import HOUR_S, Driver, DriverMachine, PipelineWorld
from sim.workload import DOOMED, MAIN, SETTLED_S, clients, create_topic, heal, in_parallel, look_at_everything

EVERYTHING = 1 << 62
LAST_PASSES = 40
VIRTUAL_S_MAX = 6 * HOUR_S


async def run(world: PipelineWorld) -> None:
    scenario = world.scenario
    await world.start()
    host = Client(world, "host")
    await create_topic(host, MAIN, scenario.partitions)
    if scenario.deleters:
        await create_topic(host, DOOMED, 1)
    for burst in range(scenario.bursts):
        await world.loop.sleep(max(0.0, burst * HOUR_S - world.loop.time()))
        jobs = [tier(Client(world, f"{machine.name}b{burst}"), machine) for machine in world.drivers]
        jobs += [vacuum(Client(world, f"{machine.name}b{burst}"), machine) for machine in world.vacuums]
        await in_parallel(world, [*jobs, *(_after(host, work) for work in clients(world, burst))])
    await heal(world)
    await tier_everything(world, "while some sleep")
    await world.loop.sleep(HOUR_S + 2 * SETTLED_S)
    await tier_everything(world, "once all are awake")
    await vacuum_at_last(world)
    await world.machines[0].restart()
    await look_at_everything(world)
    for machine in world.machines:
        await machine.stop()


async def _after(host: Client, work: Coroutine[Any, Any, None]) -> None:
    """At times jobs are there first, and find all as the last burst has left it."""
    await host.think(host.random.choice((0.0, 0.0, 0.5)))
    await work


async def tier(client: Client, machine: DriverMachine) -> None:
    """Passes of one driver, over all partitions."""
    settings = machine.world.scenario.tier
    for _ in range(machine.world.scenario.passes):
        await client.think(client.random.choice((0.1, 1.0, 5.0, 20.0)))  # at times, claims of the dead end meanwhile
        force: int | None = client.random.choice((None, None, EVERYTHING, client.random.randint(0, 40)))
        try:
            reports = await machine.call(partial(Driver.tier, settings=settings, force_up_to=force), _patience(client))
        except (*NOT_DONE, *NOT_KNOWN) as error:
            client.history.note(f"{client.name} tier: {type(error).__name__}: {error}")
            continue
        _take(client, reports)


async def vacuum(client: Client, machine: DriverMachine) -> None:
    for _ in range(client.random.randint(2, 6)):
        await client.think(client.random.choice((0.02, 0.5, 5.0)))
        try:
            report = await machine.call(Driver.vacuum, _patience(client))
        except (*NOT_DONE, *NOT_KNOWN) as error:
            client.history.note(f"{client.name} vacuum: {type(error).__name__}: {error}")
        else:
            client.history.note(f"{client.name} vacuum: {report.orphans} {report.deleted} {report.error}")


async def tier_everything(world: PipelineWorld, when: str) -> None:
    """Liveness: whatever was left behind, a few passes later there is nothing to do, and nothing in between."""
    client = Client(world, f"last driver {when}")
    await world.loop.sleep(SESSION_TTL_MS / 1000)  # claims of the dead end
    machine = await _fresh_driver(world, when)
    reports: list[PartitionReport] = []
    for _ in range(LAST_PASSES):
        await client.think(1.0)
        reports = await machine.call(lambda driver: driver.tier(world.scenario.tier, EVERYTHING), HOUR_S)
        _take(client, reports)
        if all(report.outcome == "idle" for report in reports):
            break
    else:
        world.violations.append(Violation("liveness", f"{when}, tiering never ends: {reports}"))
    for log in [log for logs in world.logs.values() for log in logs]:
        _check_all_tiered(world, keys.partition(TopicPartition(log.topic, TopicId(log.topic_id), log.partition)), when)


def _check_all_tiered(world: PipelineWorld, prefix: str, when: str) -> None:
    state = world.invariants.partitions.get(prefix)
    chain = state.chain if state is not None else None
    if state is None or chain is None:
        return
    if world.has_record(f"{prefix}meta/compaction"):
        world.violations.append(Violation("liveness", f"{prefix} {when}: a job is left behind"))
    for link in chain.links:
        if link.kind != "tiered":
            end = link.end if link.end is not None else state.control.next if state.control is not None else 0
            if link.kind == "diskless" and max(link.base, chain.start) < end:
                world.violations.append(Violation("liveness", f"{prefix} {when}: {link} is not tiered up to {end}"))
            return


async def vacuum_at_last(world: PipelineWorld) -> None:
    """Once all is quiet and old, what is left in the store is referred to."""
    machine = await _fresh_driver(world, "to vacuum")
    await machine.call(Driver.vacuum, HOUR_S)
    orphans = world.orphans()
    if orphans:
        world.violations.append(Violation("liveness", f"vacuum leaves what nothing refers to: {orphans}"))


async def _fresh_driver(world: PipelineWorld, what: str) -> DriverMachine:
    machine = DriverMachine(f"driver {what}", world)
    machine.start()
    while machine.node is None:
        await world.loop.sleep(1.0)
    return machine


def _take(client: Client, reports: list[PartitionReport]) -> None:
    for report in reports:
        client.history.note(f"{client.name} {report.topic}/{report.partition} {report}")
        if report.error.startswith("Corrupt"):
            client.world.violations.append(Violation("corrupt", f"{client.name} {report}"))


def _patience(client: Client) -> float:
    return client.random.choice((3.0, 20.0, 60.0))
