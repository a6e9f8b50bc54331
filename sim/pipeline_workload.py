"""The clients of the log scenario, in bursts an hour apart, and jobs that work on what they write.

Several drivers race on the same partitions, and each may die or sleep for an hour at any step; another finishes or
abandons what was left. Audits run beside all this and find no damage. In the end all are awake again, everything that
can be tiered is, all of it is readable, and nothing is left that nobody needs.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from catena.meta import keys
from catena.pipeline.audit import AuditReport
from catena.pipeline.tier_pass import SESSION_TTL_MS, PartitionReport
from catena.types import TopicId, TopicPartition
from sim.checker import Violation
from sim.clients import NOT_DONE, NOT_KNOWN, Client, settle
from sim.history import Outcome
from sim.pipeline_cluster import GRACE, HOUR_S, SKEW_MS_MAX, Driver, DriverMachine, PipelineWorld
from sim.pipeline_retention import retain
from sim.workload import DOOMED, MAIN, SETTLED_S, clients, create_topic, heal, in_parallel, look_at_everything

EVERYTHING = 1 << 62
LAST_PASSES = 40
"""Beside those that it takes to tier so many runs at the most in each."""
VIRTUAL_S_MAX = 6 * HOUR_S


async def run(world: PipelineWorld) -> None:
    scenario = world.scenario
    await world.start()
    host = Client(world, "host")
    await create_topic(host, MAIN, scenario.partitions, dict(scenario.retention) if scenario.retainers else None)
    if scenario.deleters:
        await create_topic(host, DOOMED, 1)
    for burst in range(scenario.bursts):
        await world.loop.sleep(max(0.0, burst * HOUR_S - world.loop.time()))
        if burst:
            world.chaos.next_burst()
        if burst and scenario.vacuums_first and world.vacuums:
            await vacuum(Client(world, f"first vacuum b{burst}"), world.vacuums[0], 1)
        lag_s = host.random.choice((0.0, 0.0, 1.0, 3.0))
        await in_parallel(world, [*jobs(world, burst), *(_after(host, lag_s, work) for work in clients(world, burst))])
        if scenario.abrupt:
            await die_after_an_append(host)
    await heal(world)
    await tier_everything(world, "while some sleep")
    await world.loop.sleep(HOUR_S + 2 * SETTLED_S)
    await tier_everything(world, "once all are awake")
    await vacuum_at_last(world)
    await audit_at_last(world, "once all is tiered")
    await world.machines[0].restart()
    await look_at_everything(world)
    await audit_at_last(world, "in the end")
    for machine in world.machines:
        await machine.stop()


def jobs(world: PipelineWorld, burst: int) -> list[Coroutine[Any, Any, None]]:
    found = [tier(Client(world, f"{machine.name}b{burst}"), machine) for machine in world.drivers]
    found += [vacuum(Client(world, f"{machine.name}b{burst}"), machine) for machine in world.vacuums]
    found += [audit(Client(world, f"{machine.name}b{burst}"), machine) for machine in world.auditors]
    found += [retain(Client(world, f"k{number}b{burst}")) for number in range(world.scenario.retainers)]
    return found


async def _after(host: Client, lag_s: float, work: Coroutine[Any, Any, None]) -> None:
    """At times jobs are there first, and find all as the last burst has left it."""
    await host.world.loop.sleep(lag_s)
    await host.think(host.random.choice((0.0, 0.0, 0.5)))
    await work


async def die_after_an_append(host: Client) -> None:
    """Of each log: the node dies as soon as the append is acked, before it has done whatever it does afterwards."""
    for log in host.world.logs[MAIN]:
        call, entry = host.new_append(log)
        machine = host.some_machine()
        error = await host.append(call, entry, machine)
        settle(host, call, [] if error is None else [error])
        if call.outcome is Outcome.OK:
            machine.kill()


async def tier(client: Client, machine: DriverMachine) -> None:
    """Passes of one driver, over all partitions."""
    settings = machine.world.scenario.tier
    for _ in range(machine.world.scenario.passes):
        await client.think(client.random.choice((0.1, 1.0, 5.0, 20.0)))  # at times, claims of the dead end meanwhile
        force: int | None = client.random.choice((None, None, EVERYTHING, client.random.randint(0, 40)))
        try:
            reports = await machine.call(partial(Driver.tier, settings=settings, force_up_to=force), patience(client))
        except (*NOT_DONE, *NOT_KNOWN) as error:
            client.history.note(f"{client.name} tier: {type(error).__name__}: {error}")
            continue
        _take(client, reports)


async def vacuum(client: Client, machine: DriverMachine, times: int | None = None) -> None:
    for number in range(times or client.random.randint(3, 7)):
        await client.think(client.random.choice((0.02, 0.5, 5.0)) if number else 0.02)
        try:
            report = await machine.call(Driver.vacuum, patience(client))
        except (*NOT_DONE, *NOT_KNOWN) as error:
            client.history.note(f"{client.name} vacuum: {type(error).__name__}: {error}")
        else:
            forgotten = len(report.forgotten_topics)
            client.history.note(f"{client.name} vacuum: {report.orphans} {report.deleted} {forgotten} {report.error}")


async def audit(client: Client, machine: DriverMachine) -> None:
    """Beside everybody else; what could not be looked at for the faults of the stores is no damage."""
    for _ in range(client.random.randint(1, 3)):
        await client.think(client.random.choice((0.1, 1.0, 5.0)))
        try:
            report = await machine.call(Driver.audit, patience(client))
        except (*NOT_DONE, *NOT_KNOWN) as error:
            client.history.note(f"{client.name} audit: {type(error).__name__}: {error}")
        else:
            _take_audit(client, report)


async def audit_at_last(world: PipelineWorld, when: str) -> None:
    """All is looked at, and all is sound."""
    machine = await fresh_driver(world, f"to audit {when}")
    report = await machine.call(Driver.audit, HOUR_S)
    _take_audit(Client(world, f"last audit {when}"), report)
    if report.unchecked or not report.is_complete:
        world.violations.append(Violation("audit", f"{when}, not all is looked at: {report.unchecked}"))


def _take_audit(client: Client, report: AuditReport) -> None:
    client.history.note(f"{client.name}: {report.offsets} offsets, {len(report.defects)} {len(report.unchecked)}")
    for found in report.defects:
        client.history.note(f"{client.name} {found}")
    if report.damage or report.unlisted:
        what = f"{client.name} takes for damage: {report.damage} {report.unlisted}"
        client.world.violations.append(Violation("audit", what))


async def tier_everything(world: PipelineWorld, when: str) -> None:
    """Liveness: whatever was left behind, a few passes later there is nothing to do, and nothing in between."""
    client = Client(world, f"last driver {when}")
    await world.loop.sleep(SESSION_TTL_MS / 1000)  # claims of the dead end
    machine = await fresh_driver(world, when)
    reports: list[PartitionReport] = []
    runs = max((len(state.entries) for state in world.invariants.partitions.values()), default=0)
    for _ in range(LAST_PASSES + runs // world.scenario.tier.max_runs):
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
    """Once all is quiet and old, what is left in the stores is referred to, and of deleted topics nothing is."""
    machine = await fresh_driver(world, "to vacuum")
    await world.loop.sleep((GRACE.longest_job_ms + 2 * SKEW_MS_MAX) / 1000)  # what was replaced stays for so long
    await machine.call(Driver.vacuum, HOUR_S)
    orphans, strays = world.orphans(), world.strays()
    if orphans:
        world.violations.append(Violation("liveness", f"vacuum leaves what nothing refers to: {orphans}"))
    if strays:
        world.violations.append(Violation("S5 (stored state)", f"vacuum leaves records of deleted topics: {strays}"))


async def fresh_driver(world: PipelineWorld, what: str) -> DriverMachine:
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


def patience(client: Client) -> float:
    return client.random.choice((3.0, 20.0, 60.0))
