"""A log with keys, written, tiered and compacted by drivers that die and sleep, and readers that rebuild its state.

What readers may see is in `compact_table`. In the end all are awake, a last driver compacts whatever is left, and then
there is one record of each key, and no mark of a deleted key that was kept for long enough; nothing is left that nobody
needs, and an audit finds all sound.
"""

from __future__ import annotations

from functools import partial

from catena.errors import InvalidBatch
from catena.formats.compression import Compression
from catena.formats.recompress import assemble
from catena.formats.record_batch import HEADER_BYTES, parse_header
from catena.formats.records import build_batch, iter_records
from catena.loglets.base import Batch, Entry
from catena.pipeline.compact import CompactPlace
from catena.pipeline.compact_pass import CompactionReport, CompactPass
from catena.pipeline.settings import CompactSettings
from catena.virtual_log.topic_configs import settings_of
from catena.virtual_log.topics import list_topics
from sim.checker import Violation
from sim.clients import NOT_DONE, NOT_KNOWN, Client
from sim.cluster import LogMachine
from sim.compact_scenario import LONG_MS, MARGIN_S, CompactScenario
from sim.compact_table import Acked, Row, Seen, Table
from sim.history import LogId
from sim.pipeline_cluster import HOUR_S, Driver, DriverMachine, PipelineWorld
from sim.pipeline_workload import (
    EVERYTHING,
    audit,
    audit_at_last,
    fresh_driver,
    patience,
    tier_everything,
    vacuum,
    vacuum_at_last,
)
from sim.workload import SETTLED_S, create_topic, heal, in_parallel

TABLE = "table"
KEYS = 4
"""That are written in each burst; some seeds have as many more that are written in one burst only, so that marks of
deleted keys are the last of theirs for long."""
LAST_PASSES = 20
READ_BYTES = (1, 150, 100_000)


class CompactWorld(PipelineWorld):
    scenario: CompactScenario

    @property
    def table(self) -> Table:
        if not hasattr(self, "_table"):
            self._table = Table(self.scenario.mark_kept_s)
        return self._table


class Keyed(Client):
    """A client of the table."""

    def __init__(self, world: CompactWorld, name: str) -> None:
        super().__init__(world, name)
        self.scenario = world.scenario
        self.table = world.table


async def run(world: CompactWorld) -> None:
    scenario = world.scenario
    await world.start()
    await create_topic(Client(world, "host"), TABLE, 1, dict(scenario.configs))
    (log,) = world.logs[TABLE]
    for burst in range(scenario.bursts):
        await world.loop.sleep(max(0.0, burst * HOUR_S - world.loop.time()))
        if burst:
            world.chaos.next_burst()
        work = [write(Keyed(world, f"w{n}b{burst}"), log, burst) for n in range(scenario.plain_writers)]
        work += [follow(Keyed(world, f"r{n}b{burst}"), log) for n in range(scenario.readers)]
        work += [tier_and_compact(Keyed(world, f"{each.name}b{burst}"), each) for each in world.drivers]
        work += [vacuum(Client(world, f"{each.name}b{burst}"), each) for each in world.vacuums]
        work += [audit(Client(world, f"{each.name}b{burst}"), each) for each in world.auditors]
        await in_parallel(world, work)
        await read_after(Keyed(world, f"after b{burst}"), log)
    await heal(world)
    await tier_everything(world, "while some sleep")
    await world.loop.sleep(HOUR_S + 2 * SETTLED_S)
    await tier_everything(world, "once all are awake")
    await compact_everything(world)
    cleaned = await write_long_after(Keyed(world, "last writer"), log)
    await tier_everything(world, "once marks are old")
    await compact_everything(world)
    await vacuum_at_last(world)
    await audit_at_last(world, "in the end")
    for machine in world.machines:
        await machine.restart()
        await look_at_last(Keyed(world, f"last {machine.name}"), log, machine, cleaned)
        await machine.stop()


async def write_long_after(client: Keyed, log: LogId) -> int:
    """All marks may go with the next compaction, and there is something to compact: below which offset."""
    await client.world.loop.sleep(LONG_MS / 1000 + MARGIN_S)
    cleaned = max(client.table.acked, default=-1) + 1
    await append(client, log, [Row(b"last", False, f"{client.name}")])
    return cleaned if max(client.table.acked, default=-1) >= cleaned else 0


async def write(client: Keyed, log: LogId, burst: int) -> None:
    for number in range(3 * client.scenario.batches_per_writer):
        if client.random.random() < client.scenario.nonsense:
            await write_nonsense(client, log, number)
        rows = [_row(client, f"{number}.{each}", burst) for each in range(client.random.randint(1, 4))]
        await append(client, log, rows)
        await client.think()


async def append(client: Keyed, log: LogId, rows: list[Row]) -> None:
    values = [(row.key, None if row.is_mark else b"v" * 20, (("name", row.name.encode()),), 0) for row in rows]
    data = build_batch(values)
    entry = Entry(parse_header(data), data)
    invoked = client.world.loop.time()
    client.table.unsure |= dict.fromkeys(rows, invoked)
    try:
        offset = await client.some_machine().call_log(log, partial(_append, entry))
    except NOT_KNOWN as error:
        client.history.note(f"{client.name} {rows}: {type(error).__name__}")
    except NOT_DONE:
        client.table.forget(rows)
    else:
        client.history.note(f"{client.name} {rows} at {offset}")
        acked = client.world.loop.time()
        client.table.acked |= {offset + at: Acked(row, invoked, acked) for at, row in enumerate(rows)}
        client.table.forget(rows)


async def write_nonsense(client: Keyed, log: LogId, number: int) -> None:
    """A batch with a right CRC, of which nobody can tell the records: it says that they are compressed."""
    made = build_batch([(b"0", f"{client.name} {number}".encode(), (), 0)] * client.random.randint(1, 3))
    header = parse_header(made)._replace(attributes=Compression.ZSTD)
    data = assemble(header, made[HEADER_BYTES:])
    try:
        offset = await client.some_machine().call_log(log, partial(_append, Entry(parse_header(data), data)))
    except (*NOT_DONE, *NOT_KNOWN) as error:
        client.history.note(f"{client.name} nonsense: {type(error).__name__}")
    else:
        client.history.note(f"{client.name} nonsense at {offset}")
        client.table.opaque[offset] = data, client.world.loop.time()


async def _append(entry: Entry, log: object) -> int:
    return int(await log.append(entry))  # type: ignore[attr-defined]


def _row(client: Keyed, name: str, burst: int) -> Row:
    key, is_mark = b"%d" % client.random.randrange(KEYS), client.random.random() < 0.35
    if client.random.random() < client.scenario.own_keys:
        key += b" of burst %d" % burst
    return Row(key, is_mark, f"{client.name} {name}")


async def follow(client: Keyed, log: LogId) -> None:
    """From the beginning to the tail, again and again, on any node."""
    for _ in range(2 * client.scenario.batches_per_writer):
        await rebuild(client, log, client.some_machine())
        await client.think()


async def read_after(client: Keyed, log: LogId) -> None:
    """All of a burst is over but the faults: nodes look at the chain anew meanwhile, and see what was compacted."""
    for _ in range(4):
        await client.world.loop.sleep(10.0)
        await rebuild(client, log, client.some_machine())


async def rebuild(client: Keyed, log: LogId, machine: LogMachine) -> list[Seen] | None:
    """What is in the log up to its tail; None: somebody did not answer."""
    began, seen, at = client.world.loop.time(), list[Seen](), 0
    opaque: dict[int, bytes] = {}
    try:
        tail = await machine.call_log(log, lambda handle: handle.tail())
        while at < tail:
            size = client.random.choice(READ_BYTES)
            batches = await machine.call_log(log, lambda handle, at=at, size=size: handle.read(at, size))  # type: ignore[misc]
            if not batches:
                client.world.violations.append(Violation("reads", f"{client.name}: nothing at {at} below {tail}"))
                return None
            seen += _seen(batches, at, opaque)
            at = batches[-1].end
    except (*NOT_DONE, *NOT_KNOWN) as error:
        client.history.note(f"{client.name} reads up to {at}: {type(error).__name__}")
        return None
    client.history.note(f"{client.name} reads {[(each.offset, each.row.name) for each in seen]} up to {at}")
    for fault in (
        *client.table.faults(seen, tail, at, began, client.world.loop.time()),
        *client.table.opaque_faults(opaque, tail, began),
    ):
        client.world.violations.append(Violation("compaction", f"{client.name}: {fault}"))
    return seen


def _seen(batches: list[Batch], start: int, opaque: dict[int, bytes]) -> list[Seen]:
    """Those that nobody can decode go to `opaque`."""
    found: list[Seen] = []
    for batch in batches:
        try:
            records = list(iter_records(batch.data, batch.offset))
        except InvalidBatch:
            opaque[batch.offset] = bytes(batch.data)
            continue
        found += [
            Seen(record.offset, Row(record.key or b"", record.value is None, (record.headers[0][1] or b"").decode()))
            for record in records
            if record.offset >= start
        ]
    return found


async def compact_once(settings: CompactSettings, driver: Driver) -> list[CompactionReport]:
    """One pass, as `catena pipeline compact` does it."""
    topics = {topic.topic_id: settings_of(topic.configs) for topic in await list_topics(driver.site.meta)}
    places = [CompactPlace(place, topics[place.tp.topic_id]) for place in await driver.places()]
    return await CompactPass(driver.site, driver.work, settings).run(places)


async def tier_and_compact(client: Keyed, machine: DriverMachine) -> None:
    scenario = client.scenario
    for _ in range(2 * scenario.passes):
        await client.think(client.random.choice((0.1, 1.0, 5.0, 20.0)))
        force: int | None = client.random.choice((None, EVERYTHING, EVERYTHING))
        try:
            if client.random.random() < 0.7:
                await machine.call(partial(Driver.tier, settings=scenario.tier, force_up_to=force), patience(client))
            if client.random.random() < 0.7:
                take(client, await machine.call(partial(compact_once, scenario.compact), patience(client)))
        except (*NOT_DONE, *NOT_KNOWN) as error:
            client.history.note(f"{client.name}: {type(error).__name__}: {error}")


async def compact_everything(world: CompactWorld) -> None:
    """Liveness: a few passes later there is nothing to do any more."""
    client = Keyed(world, "last compactor")
    machine = await fresh_driver(world, "to compact")
    settings = world.scenario.compact
    reports: list[CompactionReport] = []
    for _ in range(LAST_PASSES):
        await client.think(1.0)
        reports = await machine.call(partial(compact_once, settings), HOUR_S)
        take(client, reports)
        if all(report.outcome == "idle" for report in reports):
            return
    world.violations.append(Violation("liveness", f"compaction never ends: {reports}"))


def take(client: Client, reports: list[CompactionReport]) -> None:
    for report in reports:
        client.history.note(f"{client.name} {report}")
        if report.error.startswith(("Corrupt", "a task has failed: Corrupt")) or "Corrupt:" in report.error:
            client.world.violations.append(Violation("corrupt", f"{client.name} {report}"))


async def look_at_last(client: Keyed, log: LogId, machine: LogMachine, cleaned: int) -> None:
    """All is quiet: what is there is one record of each key, the last one, but for what a low ratio leaves. Below
    `cleaned` there is no mark of a deleted key."""
    seen = await rebuild(client, log, machine)
    if seen is None:
        client.world.violations.append(Violation("liveness", f"{client.name}: the log can't be read"))
        return
    if dict(client.scenario.configs)["min.cleanable.dirty.ratio"] != "0":
        return
    if len(seen) > len({each.row.key for each in seen}):
        client.world.violations.append(Violation("liveness", f"{client.name}: several records of a key: {seen}"))
    if old := [each for each in seen if each.row.is_mark and each.offset < cleaned]:
        client.world.violations.append(Violation("liveness", f"{client.name}: marks that never go: {old}"))
