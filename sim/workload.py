"""Who does what: clients on shared partitions, each with a bounded number of calls, then healing and a last look.

A topic that is never deleted carries most of the load. A second one, where the scenario has a deleter, is deleted and
created again under the feet of writers that still hold it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from catena.errors import LogSealed, OutOfOrderSequence, ProducerFenced, TopicExists, UnknownTopic
from catena.loglets.base import Entry
from catena.loglets.producers import REMEMBERED_BATCHES
from catena.node import Node
from sim.chaos import PAUSE_S_MAX
from sim.checker import Violation
from sim.clients import NOT_DONE, NOT_KNOWN, Client, settle
from sim.cluster import LogMachine, World
from sim.history import Append, Delete, LogId, Outcome, Stamp
from sim.leases import hold, take_at_last
from sim.machine import NoAnswer
from sim.stores import LATE_S, TIMEOUT_S

MAIN, DOOMED = "main", "doomed"
GIVE_UP_S = 120.0
"""How long an idempotent writer retries one batch before it takes a new epoch."""
SETTLED_S = max(PAUSE_S_MAX, LATE_S + TIMEOUT_S)
"""After the last fault: all are awake again, and what was late has come."""
HEALED_S = 30.0
"""From then on, all that is asked of a log is answered within this time."""
WINDOW = 3
"""Batches that an idempotent writer has under way at once."""
READERS_BACK = 2
"""Where processes of a host tell each other what they commit."""


async def run(world: World) -> None:
    await world.start()
    host = Client(world, "host")
    await create_topic(host, MAIN, world.scenario.partitions)
    if world.scenario.deleters:
        await create_topic(host, DOOMED, 1)
    await in_parallel(world, clients(world))
    await heal(world)
    await look_at_everything(world)
    for machine in world.machines:
        await machine.stop()


async def in_parallel(world: World, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    tasks = [world.loop.create_task(each) for each in work]
    for task in tasks:
        await task


def clients(world: World, burst: int = 0) -> list[Coroutine[Any, Any, None]]:
    """Those of a later burst have other names, and so do other things."""
    mark, producer = (f"b{burst}" if burst else ""), 1000 + 100 * burst
    scenario = world.scenario
    deleters = scenario.deleters if DOOMED in world.logs else 0
    found = [write(Client(world, f"w{n}{mark}")) for n in range(scenario.plain_writers)]
    found += [
        write_idempotently(Client(world, f"p{n}{mark}"), producer + n) for n in range(scenario.idempotent_writers)
    ]
    found += [follow(Client(world, f"r{n}{mark}")) for n in range(scenario.readers)]
    found += [look_around(Client(world, f"q{n}{mark}")) for n in range(scenario.lookers)]
    found += [fence(Client(world, f"f{n}{mark}")) for n in range(scenario.fencers)]
    found += [reconfigure(Client(world, f"c{n}{mark}")) for n in range(scenario.reconfigurers)]
    found += [trim(Client(world, f"t{n}{mark}")) for n in range(scenario.trimmers)]
    found += [outrun(Client(world, f"o{n}{mark}")) for n in range(scenario.outrunners)]
    found += [delete(Client(world, f"d{n}{mark}")) for n in range(deleters)]
    found += [restart(Client(world, f"s{n}{mark}")) for n in range(scenario.restarters)]
    found += [hold(Client(world, f"h{n}{mark}")) for n in range(scenario.holders)]
    found += [read_back(Client(world, f"b{n}{mark}")) for n in range(0 if world.tails is None else READERS_BACK)]
    return found


async def create_topic(client: Client, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Create it through whichever node can, and make its logs known to all clients."""

    async def create(node: Node) -> str:
        try:
            await node.topics.create(topic, partitions, client.world.scenario.kind, configs)
        except TopicExists:
            pass
        return (await node.log(topic, 0)).tp.topic_id

    while True:
        try:
            topic_id = await client.some_machine().call(create)
        except (*NOT_DONE, *NOT_KNOWN):
            await client.think(0.2)
            continue
        client.world.logs[topic] = [LogId(topic, topic_id, partition) for partition in range(partitions)]
        return


def some_log(client: Client) -> LogId:
    return client.random.choice([log for logs in client.world.logs.values() for log in logs])


async def write(client: Client) -> None:
    """One batch, or a few, each called right after the one before. Those that surely came to nothing do not count."""
    left = client.world.scenario.batches_per_writer
    for _ in range(3 * left):
        if left <= 0:
            return
        log, size = some_log(client), min(left, client.random.choice((1, 1, 2, 3)))
        batches = [client.new_append(log) for _ in range(size)]
        errors = await client.append_in_order(batches, client.some_machine())
        for (call, _), error in zip(batches, errors, strict=True):
            settle(client, call, [] if error is None else [error])
            left -= call.outcome is not Outcome.FAILED
        await client.think()


async def write_idempotently(client: Client, producer_id: int) -> None:
    """A few batches at a time: in order on one node, as over one connection, or each by whichever node.

    The first batch of an epoch makes the producer known, so then those that go their own ways wait for it.
    """
    log, epoch, sequence = client.random.choice(client.world.logs[MAIN]), 0, 0
    left = client.world.scenario.batches_per_writer
    acked: list[tuple[Append, Entry]] = []
    while left > 0:
        window = []
        # What comes right behind a producer's first batch is what a log is most easily wrong about.
        in_order = client.random.random() < (0.5 if sequence else 0.8)
        for _ in range(min(left, client.random.randint(1 if sequence else 2, WINDOW) if in_order or sequence else 1)):
            call, entry = client.new_append(log, Stamp(producer_id, epoch, sequence))
            sequence += call.count
            window.append((call, entry))
        left -= len(window)
        if in_order:
            await _send_in_order(client, window)
        else:
            alone = len(window) == 1
            await in_parallel(client.world, [_send_until_acked(client, call, entry, alone) for call, entry in window])
        acked += window
        if any(call.outcome is not Outcome.OK for call, _ in window):
            epoch, sequence, acked = epoch + 1, 0, []
        elif client.random.random() < 0.6:
            await _send_again(client, *client.random.choice(acked[-REMEMBERED_BATCHES:]))
        await client.think()


async def _send_again(client: Client, acked: Append, entry: Entry) -> None:
    """As if the ack had been lost on its way: a log that remembers the batch answers with its first offset."""
    again = Append(acked.log, client.name, acked.invoked, batch=acked.batch, count=acked.count, stamp=acked.stamp)
    error = await client.append(again, entry, client.some_machine())
    told = again.offset if error is None else acked.offset
    if told != acked.offset or isinstance(error, OutOfOrderSequence | ProducerFenced):
        what = f"{acked.log} batch {acked.batch} at {acked.offset}, sent again: {error or told}"
        client.world.violations.append(Violation("exactly once", what))


async def _send_until_acked(client: Client, call: Append, entry: Entry, alone: bool) -> None:
    """Whoever has only one batch under way can't be out of order; one of several may come in before its turn."""
    deadline = client.world.loop.time() + GIVE_UP_S
    errors: list[Exception] = []
    while client.world.loop.time() < deadline:
        error = await client.append(call, entry, client.some_machine())
        if error is None:
            return
        errors.append(error)
        if isinstance(error, ProducerFenced) or (isinstance(error, OutOfOrderSequence) and alone):
            client.world.violations.append(Violation("exactly once", f"{call.log} batch {call.batch}: {error}"))
            break
        await client.think(0.5)
    settle(client, call, errors)


async def _send_in_order(client: Client, window: list[tuple[Append, Entry]]) -> None:
    """What was not acked is sent again, in order, once all are answered. Nobody is out of turn but by a failure."""
    deadline = client.world.loop.time() + GIVE_UP_S
    errors: dict[int, list[Exception]] = {call.batch: [] for call, _ in window}
    left, refused = window, False
    while left and not refused and client.world.loop.time() < deadline:
        answers = await client.append_in_order(left, client.some_machine())
        for at, ((call, _), error) in enumerate(zip(left, answers, strict=True)):
            if error is not None:
                errors[call.batch].append(error)
            in_turn = not any(answers[:at])
            if isinstance(error, ProducerFenced) or (isinstance(error, OutOfOrderSequence) and in_turn):
                client.world.violations.append(Violation("exactly once", f"{call.log} batch {call.batch}: {error}"))
                refused = True
        left = [batch for batch, error in zip(left, answers, strict=True) if error is not None]
        await client.think(0.5)
    for call, _ in left:
        settle(client, call, errors[call.batch])


async def follow(client: Client) -> None:
    """From the start to the tail and on, now and then by way of another node; some as fetches do, which wait."""
    log, position, machine = some_log(client), 0, client.some_machine()
    waits = (0.0, 0.05, 0.5, 3.0) if client.random.random() < 0.5 else ()
    for _ in range(3 * client.world.scenario.batches_per_writer):
        max_bytes = client.random.choice((1, 200, 100_000))
        if waits:
            read = await client.poll(log, position, machine, max_bytes, client.random.choice(waits))
        else:
            read = await client.read(log, position, machine, max_bytes)
        if read.seen:
            position = read.seen[-1].end
        elif read.out_of_range is not None:
            position = read.out_of_range[0]
        elif read.outcome is Outcome.OK and client.random.random() < 0.7:
            await client.wait_for_tail(log, position, machine, client.random.choice((0.05, 1.0, 5.0)))
        if client.random.random() < 0.1:
            machine = client.some_machine()
        await client.think()


async def look_around(client: Client) -> None:
    """Tails, starts, reads at random and by time, each on any node."""
    for _ in range(3 * client.world.scenario.batches_per_writer):
        log, machine = some_log(client), client.some_machine()
        what = client.random.random()
        if what < 0.2:
            await client.start(log, machine)
        elif what < 0.4:
            await client.find_time(log, client.random.randint(0, client.now_ms() + 100), machine)
        else:
            tail = await client.tail(log, machine)
            if tail.outcome is Outcome.OK and what < 0.7:
                somewhere = client.random.choice((0, tail.tail, client.random.randint(0, tail.tail)))
                await client.read(log, somewhere, client.some_machine(), 1000)
        await client.think()


async def fence(client: Client) -> None:
    for _ in range(client.random.randint(1, 2)):
        await client.think(0.3)
        log = client.random.choice(client.world.logs[MAIN])
        await client.seal(log, client.some_machine())
        await client.think(0.1)
        reopened = False
        while not reopened:
            call = await client.reconfigure(
                log, client.random.choice(client.world.scenario.kinds), client.some_machine()
            )
            reopened = call.outcome is Outcome.OK
            await client.think(0.5)


async def reconfigure(client: Client) -> None:
    for _ in range(client.random.randint(1, 3)):
        await client.think(0.3)
        log = client.random.choice(client.world.logs[MAIN])
        await client.reconfigure(log, client.random.choice(client.world.scenario.kinds), client.some_machine())


async def trim(client: Client) -> None:
    """Anywhere up to the tail; often right after the log has moved, when what is trimmed lies in earlier links."""
    for _ in range(client.random.randint(3, 8)):
        await client.think(0.5)
        log, machine = client.random.choice(client.world.logs[MAIN]), client.some_machine()
        if client.random.random() < 0.5:
            await client.reconfigure(log, client.random.choice(client.world.scenario.kinds), machine)
        tail = await client.tail(log, machine)
        if tail.outcome is Outcome.OK and tail.tail:
            await client.trim(log, client.random.randint(1, tail.tail), client.some_machine())


async def outrun(client: Client) -> None:
    """A reader stands at the tail; on another node more is appended and trimmed at once; the reader asks again.

    Its node has looked at the chain a moment ago, and knows neither of the records nor of the trim.
    """
    for _ in range(client.random.randint(2, 5)):
        await client.think(0.5)
        log = client.random.choice(client.world.logs[MAIN])
        slow, fast = client.random.sample(client.world.machines, 2)
        tail = await client.tail(log, slow)
        if tail.outcome is not Outcome.OK:
            continue
        await client.read(log, tail.tail, slow, 1000)
        call, entry = client.new_append(log)
        error = await client.append(call, entry, fast)
        settle(client, call, [] if error is None else [error])
        if call.outcome is Outcome.OK:
            await client.trim(log, call.end, fast)
            await client.read(log, tail.tail, slow, 1000)


async def read_back(client: Client) -> None:
    """What was acked a moment ago is read on another node, by itself and as fetches do.

    That node is told of commits by others of its host: of the one before, and of this one a bit later, if at all.
    """
    for _ in range(client.random.randint(3, 8)):
        await client.think(0.3)
        log, reader = client.random.choice(client.world.logs[MAIN]), client.some_machine()
        for _ in range(4):
            call, entry = client.new_append(log)
            error = await client.append(call, entry, client.some_machine())
            settle(client, call, [] if error is None else [error])
            if call.outcome is not Outcome.OK:
                break
            if client.random.random() < 0.5:
                await client.read(log, call.offset, reader, 1000)
            else:
                await client.poll(log, call.offset, reader, 1000, client.random.choice((0.0, 0.02)))
            await client.think(0.05)


async def delete(client: Client) -> None:
    """Delete the topic and create it again, unless a delete that nobody answered might take the new one with it."""
    for _ in range(client.random.randint(2, 6)):
        await client.think(0.5)
        (log,) = client.world.logs[DOOMED]
        if not await _delete_surely(client, Delete(log, client.name, 0)):
            del client.world.logs[DOOMED]
            return
        await client.think(client.random.choice((0.2, 5.0, 10.0)))  # long enough for a create that is late
        await create_topic(client, DOOMED, 1)
        if client.world.logs[DOOMED] == [log]:
            client.world.violations.append(Violation("deleted topic came back", str(log)))


async def _delete_surely(client: Client, call: Delete) -> bool:
    """Whether no attempt is left that might still delete whatever has the name by then."""
    client.history.invoke(call, "delete")
    all_answered = True
    while call.outcome is not Outcome.OK:
        try:
            await client.some_machine().call(lambda node: node.topics.delete(DOOMED))
        except UnknownTopic:
            client.history.ok(call, "gone")
        except (*NOT_DONE, *NOT_KNOWN) as error:
            all_answered = all_answered and not isinstance(error, NoAnswer)
            await client.think(0.5)
        else:
            client.history.ok(call, "deleted")
    return all_answered


async def restart(client: Client) -> None:
    """A rolling restart: nodes are closed cleanly, one after the other, while clients go on."""
    for machine in client.world.machines:
        await client.think(0.5)
        try:
            await machine.stop()
        except NoAnswer as error:
            client.history.note(f"{machine.name} is not closed: {error}")
        await machine.restart()


async def heal(world: World) -> None:
    """End all faults, wait for what is still on its way, and start half of the processes anew."""
    world.heal()
    await world.loop.sleep(SETTLED_S)
    for machine in world.machines:
        if world.random.random() < 0.5:
            await machine.restart()
        await machine.wait_until_up()


async def look_at_everything(world: World) -> None:
    """Liveness: every node takes an append to each log, wakes who waits for it, and reads all of it."""
    host = Client(world, "host")
    for log in [log for logs in world.logs.values() for log in logs]:
        began = world.loop.time()
        for machine in world.machines:  # what a node that has just started says of the beginning
            await host.read(log, 0, machine, 1)
        if world.random.random() < 0.3:
            await _seal_and_reopen(host, log, host.some_machine())
        for machine in world.machines:
            await _append_surely(host, log, machine)
            await _wake_by_append(host, log, machine)
        for machine in world.machines:
            await _read_to_the_tail(Client(world, f"last {machine.name}"), log, machine)
        if world.loop.time() - began > HEALED_S:
            world.violations.append(Violation("liveness", f"{log}: a last look took {world.loop.time() - began:.0f} s"))
    await take_at_last(host, world.random.choice(world.machines))


async def _wake_by_append(client: Client, log: LogId, machine: LogMachine) -> None:
    """Who waits for the tail on one node is woken by an append on another."""
    tail = await client.tail(log, machine)
    waiting = client.world.loop.create_task(client.wait_for_tail(log, tail.tail, machine, 2 * HEALED_S))
    await client.think(0.1)
    await _append_surely(client, log, client.some_machine())
    await waiting


async def _append_surely(client: Client, log: LogId, machine: LogMachine) -> None:
    """A log that somebody left sealed is opened first; nothing else excuses a failure now."""
    for _ in range(2):
        call, entry = client.new_append(log)
        error = await client.append(call, entry, machine)
        settle(client, call, [] if error is None else [error])
        if error is None:
            return
        if isinstance(error, LogSealed):
            await client.reconfigure(log, client.random.choice(client.world.scenario.kinds), machine)
    client.world.violations.append(Violation("liveness", f"{log}: {machine.name} takes no append after healing"))


async def _seal_and_reopen(client: Client, log: LogId, machine: LogMachine) -> None:
    """Whatever change somebody has left half done."""
    calls = (
        await client.seal(log, machine),
        await client.reconfigure(log, client.random.choice(client.world.scenario.kinds), machine),
    )
    if any(call.outcome is not Outcome.OK for call in calls):
        what = f"{log}: {machine.name} can't seal and reopen it after healing"
        client.world.violations.append(Violation("liveness", what))


async def _read_to_the_tail(client: Client, log: LogId, machine: LogMachine) -> None:
    start, tail = await client.start(log, machine), await client.tail(log, machine)
    position = start.start
    while start.outcome is Outcome.OK and position < tail.tail:
        read = await client.read(log, position, machine, 300, final=True)
        if not read.seen:
            break
        position = read.seen[-1].end
    if start.outcome is not Outcome.OK or tail.outcome is not Outcome.OK or position < tail.tail:
        client.world.violations.append(
            Violation("liveness", f"{log}: {machine.name} reads up to {position} of {tail.tail} after healing")
        )
