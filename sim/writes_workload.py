"""Applications that write, in attempts that die, sleep and race; in the end each version is in the logs once and whole.

An attempt at a version stores runs of its own, so that whatever is read tells which attempt it came from. The rules of
the log hold for these batches as for any other; on top of them: of a version's attempts one is in the logs and the
others are nowhere, each of its batches is there, in order, and versions follow each other.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from catena.errors import CatenaError, NeedsOperator
from catena.formats import wal_blob
from catena.formats.records import build_batch
from catena.meta import keys
from catena.node import Node
from catena.pipeline.settings import WritesSettings
from catena.runtime import Entropy
from catena.source.adopting import Adopter, Written, stamp_of
from catena.source.finishing import WritesReport, finish_writes
from catena.types import ABSENT, TopicId
from catena.virtual_log.intents import StoredBlob, StoredRun, heads
from sim.checker import Violation
from sim.clients import PATCHED_BYTES, Client
from sim.history import Append, LogId, Read
from sim.machine import NoAnswer, NotConnected
from sim.pipeline_cluster import GRACE, HOUR_S
from sim.pipeline_workload import audit_at_last, jobs, tier_everything, vacuum, vacuum_at_last
from sim.runtime import SimEntropy
from sim.workload import MAIN, SETTLED_S, clients, create_topic, heal, in_parallel, look_at_everything
from sim.writes_world import MAX_BLOB_AGE_MS, WriterMachine, WritesWorld

ATTEMPTS_MAX = 12
ONCE = "once-"
"""What applications are called that are one write each."""
VIRTUAL_S_MAX = 6 * HOUR_S


@dataclass
class Attempt:
    batches: dict[LogId, list[int]] = field(default_factory=dict)
    """What it means to be in each log, in this order."""


@dataclass
class Version:
    app: str
    number: int
    attempts: list[Attempt] = field(default_factory=list)
    is_done: bool = False
    """Somebody was told so."""


async def run(world: WritesWorld, versions: list[Version]) -> None:
    scenario = world.scenario
    await world.start()
    host = Client(world, "host")
    await create_topic(host, MAIN, scenario.partitions)
    for burst in range(scenario.bursts):
        await world.loop.sleep(max(0.0, burst * HOUR_S - world.loop.time()))
        if burst:
            world.chaos.next_burst()
        if burst and scenario.vacuums_first and world.vacuums:
            await vacuum(Client(world, f"first vacuum b{burst}"), world.vacuums[0], 1)
        writes = [*applications(world, burst, versions), *unnamed(world, burst, versions), *finishers(world, burst)]
        await in_parallel(world, [*jobs(world, burst), *clients(world, burst), *writes])
    await heal(world)
    await world.loop.sleep(HOUR_S + 2 * SETTLED_S)
    await finish_at_last(world)
    for app in dict.fromkeys(version.app for version in versions if not version.app.startswith(ONCE)):
        await finish(world, app, versions)
    await tier_everything(world, "once all are awake")
    await world.loop.sleep(2 * GRACE.grace_ms / 1000)  # what sleepers have stored is old as well
    await vacuum_at_last(world)
    if left := world.bodies():
        world.violations.append(Violation("liveness", f"vacuum leaves bodies of writes that are over: {left}"))
    await audit_at_last(world, "in the end")
    await world.machines[0].restart()
    await look_at_everything(world)
    for machine in world.machines:
        await machine.stop()


def applications(world: WritesWorld, burst: int, versions: list[Version]) -> list[Coroutine[Any, Any, None]]:
    count = world.scenario.versions
    return [
        write(
            Client(world, f"app{number}b{burst}"), f"app{number}", range(burst * count, (burst + 1) * count), versions
        )
        for number in range(world.scenario.applications)
    ]


def unnamed(world: WritesWorld, burst: int, versions: list[Version]) -> list[Coroutine[Any, Any, None]]:
    return [
        write_once(Client(world, f"once{number}b{burst}"), f"{ONCE}{number}-{burst}", versions)
        for number in range(world.scenario.unnamed)
    ]


async def write_once(client: Client, app: str, versions: list[Version]) -> None:
    """Nobody comes back for it, whatever became of it."""
    world = client.world
    assert isinstance(world, WritesWorld)
    version = Version(app, 0)
    versions.append(version)
    await client.think()
    await attempt(client, version, client.random.choice(world.writers))


async def write(client: Client, app: str, numbers: range, versions: list[Version]) -> None:
    """One version after the other, each until somebody says that it is done; an attempt may race the one before."""
    world = client.world
    assert isinstance(world, WritesWorld)
    for number in numbers:
        version = Version(app, number)
        versions.append(version)
        for _ in range(ATTEMPTS_MAX):
            await client.think()
            racers = client.random.choice((1, 1, 2))
            machines = [client.random.choice(world.writers) for _ in range(racers)]
            await in_parallel(world, [attempt(client, version, machine) for machine in machines])
            if version.is_done:
                break
            await client.think(client.random.choice((0.1, 1.0, 10.0)))
        else:
            return


async def attempt(client: Client, version: Version, machine: WriterMachine) -> None:
    made = Attempt()
    seed = client.random.getrandbits(64)
    try:
        await machine.call(
            lambda node: _write(client, node, version, made, SimEntropy(seed)), client.random.choice((1.0, 5.0, 60.0))
        )
    except (CatenaError, NoAnswer, NotConnected) as error:
        client.history.note(f"{client.name} {version.app} v{version.number}: {type(error).__name__}: {error}")
        if isinstance(error, NeedsOperator):
            client.world.violations.append(Violation("write", f"{version.app} v{version.number}: {error!r}"))
    else:
        client.history.note(f"{client.name} {version.app} v{version.number}: done")
        version.is_done = True


async def _write(client: Client, node: Node, version: Version, made: Attempt, entropy: Entropy) -> None:
    """In the process of a writer."""
    version.attempts.append(made)
    logs = client.world.logs[MAIN]
    blobs = [
        await _store(client, node, version, made, logs, task, entropy) for task in range(client.random.choice((1, 2)))
    ]
    topics = {TopicId(log.topic_id): log.topic for log in logs}
    is_once = version.app.startswith(ONCE)
    await Adopter(node, entropy, version.app, MAX_BLOB_AGE_MS, is_once).commit(version.number, Written(topics, blobs))


async def _store(
    client: Client, node: Node, version: Version, made: Attempt, logs: list[LogId], task: int, entropy: Entropy
) -> StoredBlob:
    stamp, sections, now_ms = stamp_of(version.app, version.number, task, 0), list[wal_blob.Section](), client.now_ms()
    for log in logs:
        bodies, sequence = list[bytes](), 0
        for _ in range(client.random.choice((1, 1, 2))):
            batch, count = client.history.new_batch(), client.random.randint(1, 3)
            data = build_batch(
                [(None, f"{batch}:{number}".encode(), (), now_ms) for number in range(count)],
                producer_id=stamp.producer_id,
                producer_epoch=stamp.epoch,
                base_sequence=sequence,
            )
            client.history.know(bytes(data[PATCHED_BYTES:]))
            call = Append(log, client.name, 0, batch=batch, count=count, timestamp_ms=now_ms)
            client.history.invoke(call, f"store batch {batch} x{count} of {version.app} v{version.number}")
            made.batches.setdefault(log, []).append(batch)
            bodies.append(bytes(data))
            sequence += count
        topic_id = TopicId(log.topic_id)
        sections.append(wal_blob.Section(log.topic, topic_id, log.partition, sequence, wal_blob.KAFKA_BATCH_V2, bodies))
    created_at_ms = node.clock.now_ms()
    chunks, positions = wal_blob.encode(node.cluster_id, created_at_ms, sections)
    key = keys.wal_blob(entropy.hex_id())
    await node.objects.put(key, chunks, ABSENT)
    runs = tuple(
        StoredRun(each.topic_id, each.partition, at, sum(map(len, each.bodies)), each.msg_count, now_ms)
        for each, at in zip(sections, positions, strict=True)
    )
    return StoredBlob(key, created_at_ms, *stamp, runs)


def finishers(world: WritesWorld, burst: int) -> list[Coroutine[Any, Any, None]]:
    return [finish_for_others(Client(world, f"finisher{n}b{burst}")) for n in range(world.scenario.finishers)]


async def finish_for_others(client: Client) -> None:
    """What the pipeline's service does: it takes part as another process that dies and sleeps."""
    world = client.world
    assert isinstance(world, WritesWorld)
    for _ in range(client.random.randint(1, 4)):
        await client.think(client.random.choice((1.0, 10.0)))
        seed, after_ms = client.random.getrandbits(64), client.random.choice((0, 1_000, 30_000))
        machine = client.random.choice(world.writers)
        try:
            report = await machine.call(lambda node: _finish(node, seed, after_ms), client.random.choice((5.0, 60.0)))  # noqa: B023
        except (CatenaError, NoAnswer, NotConnected) as error:
            client.history.note(f"{client.name}: {type(error).__name__}: {error}")
        else:
            client.history.note(f"{client.name}: {report.finished} finished, {report.abandoned} abandoned")
            _tell(world, report)


async def finish_at_last(world: WritesWorld) -> None:
    """Liveness: nothing is left open, whoever had begun it."""
    machine = await _last_writer(world, "last finisher")

    async def settle(node: Node) -> tuple[WritesReport, list[str]]:
        report = await _finish(node, 1, 0)
        return report, [app async for app, head in heads(node.meta) if head.open is not None]

    try:
        report, left = await machine.call(settle, HOUR_S)
    except (CatenaError, NoAnswer) as error:
        world.violations.append(Violation("liveness", f"writes can't be finished: {error!r}"))
        return
    _tell(world, report)
    world.violations.extend(Violation("liveness", f"{app} is not over") for app in left)


async def _finish(node: Node, seed: int, after_ms: int) -> WritesReport:
    settings = WritesSettings(finish_after_ms=after_ms)
    return await finish_writes(node, SimEntropy(seed), settings, GRACE.grace_ms)


def _tell(world: WritesWorld, report: WritesReport) -> None:
    for app, error in report.failures.items():
        if isinstance(error, NeedsOperator):
            world.violations.append(Violation("write", f"{app} can't be finished: {error!r}"))


async def _last_writer(world: WritesWorld, name: str) -> WriterMachine:
    machine = WriterMachine(name, world)
    machine.start()
    while machine.node is None:
        await world.loop.sleep(1.0)
    return machine


async def finish(world: WritesWorld, app: str, versions: list[Version]) -> None:
    """Liveness: what was begun can be finished by whoever comes, and is over then."""
    last = max(version.number for version in versions if version.app == app)
    machine = await _last_writer(world, f"last writer of {app}")

    async def settle(node: Node) -> int:
        adopter = Adopter(node, SimEntropy(last), app, MAX_BLOB_AGE_MS)
        await adopter.commit(last, Written({}, []))
        head = await adopter.find()
        assert head.open is None
        return head.done

    try:
        done = await machine.call(settle, HOUR_S)
    except (CatenaError, NoAnswer) as error:
        world.violations.append(Violation("liveness", f"{app}: what was begun can't be finished: {error!r}"))
        return
    for version in versions:
        if version.app == app and version.is_done and version.number > done:
            world.violations.append(
                Violation("write lost", f"{app} v{version.number} was done, and {done} is the last")
            )


def check(world: WritesWorld, versions: list[Version]) -> Iterator[Violation]:
    """By what each node has read in the end, from the start to the tail."""
    reads: dict[tuple[LogId, str], list[int]] = {}
    for call in world.history.calls:
        if isinstance(call, Read) and call.final:
            reads.setdefault((call.log, call.client), []).extend(seen.batch for seen in call.seen)
    for (log, client), batches in reads.items():
        at = {batch: place for place, batch in enumerate(batches)}
        reached: dict[str, int] = {}
        for version in versions:
            what = f"{log} as {client} reads it: {version.app} v{version.number}"
            found = [each for each in version.attempts if any(batch in at for batch in each.batches.get(log, ()))]
            if len(found) > 1:
                yield Violation("two attempts", what)
            if version.is_done and not found:
                yield Violation("write lost", what)
            for each in found:
                places = [at.get(batch, -1) for batch in each.batches[log]]
                if -1 in places:
                    yield Violation("write in part", f"{what}: {each.batches[log]} at {places}")
                if places != sorted(places) or places[0] < reached.get(version.app, 0):
                    yield Violation("write out of order", f"{what}: {each.batches[log]} at {places}")
                reached[version.app] = places[-1]
    for version in versions:
        visible = {
            number
            for number, each in enumerate(version.attempts)
            for (log, _), batches in reads.items()
            if not set(each.batches.get(log, ())).isdisjoint(batches)
        }
        if len(visible) > 1:
            yield Violation("two attempts", f"{version.app} v{version.number}: attempts {sorted(visible)}")
