"""What one seed turns on. Swarm style: each seed draws which faults exist at all and how often they come.

A run with every fault at once rarely gets far enough to meet the rare interleavings; a run with two of them, often
hit, does. Half of the seeds commit with `transact` and half without; in some the nodes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.tail_cache import OVERHEAD_BYTES
from catena.loglets.diskless.writer import WriterSettings
from catena.loglets.tiered.loglet import TieredSettings
from sim.loop import Chance
from sim.steps import RARE_STEPS, STEPS


@dataclass(frozen=True)
class StoreFaults:
    """Chances per call of one store."""

    refused: float = 0.0
    """StoreUnavailable, nothing applied (a 503, a 409 of two racing conditional writes)."""
    lost_request: float = 0.0
    """OutcomeUnknown, never applied."""
    lost_answer: float = 0.0
    """OutcomeUnknown, applied."""
    late: float = 0.0
    """OutcomeUnknown, applied some time after the caller was told so, while others go on."""
    slow: float = 0.0
    outage: float = 0.0
    """Chance, at each call, that the store goes down for a while."""
    own_conflict: float = 0.0
    """Objects only: a create that was applied answers 412, since a retry on the way met its own first attempt."""


@dataclass(frozen=True)
class WatchFaults:
    lost: float = 0.0
    stale: float = 0.0
    spurious: float = 0.0


@dataclass(frozen=True)
class ProcessFaults:
    step_strike: float = 0.0
    """Chance, at each write to a store, that its process is struck there."""
    target_strike: float = 0.0
    """The same for the steps in `targets`."""
    targets: tuple[str, ...] = ()
    aims: tuple[str, ...] = ()
    """Steps that few take: the first process that comes to one is struck there, over and above `strikes_max`."""
    pauses: float = 0.0
    """Share of strikes that freeze the process for a while instead of killing it."""
    await_gap: int = 0
    """Mean number of steps between strikes at awaits of any kind; 0: none."""
    strikes_max: int = 0
    cancels: float = 0.0
    """Chance that a client that lost patience takes its call along."""
    skew_ms: int = 0


@dataclass(frozen=True)
class Scenario:
    seed: int
    transact: float
    """Share of the processes that commit with `transact`: all, none, or, now and then, some."""
    nodes: int
    partitions: int
    kind: str
    """Of the first link of each partition."""
    kinds: tuple[str, ...]
    """Of those that follow."""
    meta: StoreFaults
    objects: StoreFaults
    watches: WatchFaults
    processes: ProcessFaults
    plain_writers: int
    idempotent_writers: int
    batches_per_writer: int
    readers: int
    lookers: int
    fencers: int
    reconfigurers: int
    trimmers: int
    outrunners: int
    """Who trim what a reader on another node is about to read."""
    deleters: int
    restarters: int
    holders: int
    """Of the lease."""
    think_s: float
    """Mean pause of a client between two calls."""
    diskless: DisklessSettings
    tiered: TieredSettings


def draw(seed: int) -> Scenario:
    random = Chance(f"scenario {seed}")
    fencers, trimmers, deleters = (int(random.random() < chance) for chance in (0.4, 0.5, 0.45))
    reconfigurers, holders = random.choice((0, 1, 1, 2)), random.choice((0, 0, 1, 2))
    clients = {
        "writers": 1,
        "fencers": fencers,
        "reconfigurers": reconfigurers,
        "trimmers": trimmers,
        "deleters": deleters,
        "holders": holders,
    }
    rare = [steps for who, steps in RARE_STEPS.items() if clients[who]]
    return Scenario(
        seed=seed,
        transact=random.random() if random.random() < 0.1 else float(seed % 2 == 0),
        nodes=random.choice((2, 2, 3)),
        partitions=random.choice((1, 1, 2, 3)),
        kind=random.choice(("diskless", "diskless", "diskless", "memory")),
        kinds=("diskless", "memory"),
        meta=_store_faults(random, objects=False),
        objects=_store_faults(random, objects=True),
        watches=WatchFaults(
            lost=maybe(random, 0.3, 0.5), stale=maybe(random, 0.3, 0.5), spurious=maybe(random, 0.3, 0.2)
        ),
        processes=process_faults(random, STEPS, rare),
        plain_writers=random.randint(1, 3),
        idempotent_writers=random.randint(1, 3),
        batches_per_writer=random.randint(3, 9),
        readers=random.randint(1, 3),
        lookers=random.randint(1, 2),
        fencers=fencers,
        reconfigurers=reconfigurers,
        trimmers=trimmers,
        deleters=deleters,
        restarters=int(random.random() < 0.3),
        holders=holders,
        think_s=random.choice((0.0, 0.01, 0.05, 0.2)),
        diskless=_diskless_settings(random),
        tiered=TieredSettings(),
        outrunners=int(random.random() < 0.3),
    )


def maybe(random: Chance, chance: float, most: float) -> float:
    """Off, or on with a rate of up to `most`; small rates are as likely as large ones."""
    return most * random.random() ** 2 if random.random() < chance else 0.0


def _surely(random: Chance, most: float) -> float:
    return most * (0.3 + 0.5 * random.random())


def _store_faults(random: Chance, objects: bool) -> StoreFaults:
    """None at all, a few kinds, or a storm of every kind."""
    weather = random.random()
    if weather < 0.15:
        return StoreFaults()
    rate = partial(maybe, random, 0.4) if weather < 0.8 else partial(_surely, random)
    return StoreFaults(
        refused=rate(0.25),
        lost_request=rate(0.25),
        lost_answer=rate(0.3),
        late=rate(0.3),
        slow=rate(0.2),
        outage=rate(0.01),
        own_conflict=rate(0.25) if objects else 0.0,
    )


def _diskless_settings(random: Chance) -> DisklessSettings:
    """Small enough to reach every limit: full blobs, full buffers, evicted caches, missed deadlines."""
    return DisklessSettings(
        writer=WriterSettings(
            batch_max_bytes=random.choice((100, 400, 8 << 20)),
            batch_max_delay_ms=random.choice((1, 20, 250)),
            uploads_in_flight=random.choice((1, 2, 4)),
            buffer_max_bytes=random.choice((600, 128 << 20, 128 << 20)),
            commit_deadline_ms=random.choice((2_000, 10_000, 30_000)),
        ),
        tail_cache_bytes=random.choice((0, 4 * OVERHEAD_BYTES, 64 << 20)),
        blob_cache_bytes=random.choice((0, 600, 64 << 20)),
    )


def process_faults(random: Chance, steps: Sequence[str], rare: Sequence[Sequence[str]]) -> ProcessFaults:
    """`rare`: steps that few processes take, by the kinds of clients that are there and have them taken."""
    if random.random() < 0.15:
        return ProcessFaults()
    return ProcessFaults(
        step_strike=maybe(random, 0.6, 0.05),
        target_strike=random.choice((0.1, 0.3, 0.6)),
        targets=(*random.sample(steps, 4), *(random.choice(each) for each in rare)),
        aims=tuple(random.choice(each) for each in random.sample(rare, min(2, len(rare)))),
        pauses=random.choice((0.0, 0.3, 0.5, 0.8)),
        await_gap=random.choice((0, 0, 300, 1000)),
        strikes_max=random.randint(1, 6),
        cancels=maybe(random, 0.3, 0.5),
        skew_ms=random.choice((0, 0, 50, 100_000)),
    )
