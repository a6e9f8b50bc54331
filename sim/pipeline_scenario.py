"""What one seed of the pipeline scenario turns on: that of the log scenario, and jobs of several drivers beside it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import msgspec

from catena.loglets.tiered.loglet import TieredSettings
from catena.pipeline.settings import TierSettings
from sim import scenario
from sim.loop import Chance
from sim.pipeline_steps import (
    FORGET_STEPS,
    LAST_TIER_STEPS,
    PIPELINE_STEPS,
    READ_STEPS,
    RECOVER_STEPS,
    TIER_STEPS,
    VACUUM_STEPS,
)
from sim.runtime import EPOCH_MS, FIRST_TIMESTAMP_MS
from sim.scenario import ProcessFaults, Scenario
from sim.steps import RARE_STEPS


@dataclass(frozen=True)
class PipelineScenario(Scenario):
    bursts: int
    """An hour lies between two: who falls asleep in one wakes up in the next."""
    drivers: int
    """None: nothing is tiered before the end."""
    passes: int
    """Of each driver in each burst."""
    vacuums: int
    auditors: int
    retainers: int
    retention: tuple[tuple[str, str], ...]
    """Configs of the topic that they trim by."""
    lingers_s: float
    """So long, at the most, does vacuum take between one read and the next."""
    abrupt: bool
    """A burst ends with the death of whoever has appended last: without `transact`, what it wrote stays pending."""
    claims: bool
    """Or else everyone gets the claim of any partition: it only saves work."""
    sleeps: float
    """Share of a driver's pauses that last for an hour."""
    vacuums_first: bool
    """A burst begins with a vacuum, before anyone has looked at the jobs that the last one has left behind."""
    tier: TierSettings


def draw(seed: int) -> PipelineScenario:
    random = Chance(f"pipeline scenario {seed}")
    drawn = scenario.draw(seed)
    # A link in memory can't be tiered, nor what follows it: most logs have none, or little would be.
    is_diskless = random.random() < 0.7
    log = replace(
        drawn,
        kind="diskless" if is_diskless else drawn.kind,
        kinds=("diskless",) if is_diskless else drawn.kinds,
        partitions=random.choice((1, 1, 2)),
        batches_per_writer=random.randint(3, 6),
        fencers=int(random.random() < 0.15),
        reconfigurers=random.choice((0, 0, 1)),
        trimmers=int(random.random() < 0.4),
        deleters=int(random.random() < 0.4),
        restarters=int(random.random() < 0.2),
        holders=0,
        processes=_process_faults(random),
        # A job asks so much of the meta store that one which often refuses lets none get anywhere.
        meta=replace(drawn.meta, refused=drawn.meta.refused * random.choice((0.0, 0.0, 0.1, 1.0))),
        tiered=TieredSettings(
            cache_bytes=random.choice((0, 600, 64 << 20)),
            index_cache_bytes=random.choice((0, 100, 16 << 20)),
            manifest_cache_bytes=random.choice((0, 2000, 16 << 20)),
        ),
    )
    found = PipelineScenario(
        **{field.name: getattr(log, field.name) for field in fields(Scenario)},
        bursts=random.choice((1, 2, 2, 2, 3)),
        drivers=random.choice((0, 1, 2, 2, 3)),
        passes=random.randint(2, 5),
        vacuums=random.choice((0, 1, 1, 2)),
        auditors=int(random.random() < 0.5),
        retainers=int(random.random() < 0.3),
        retention=_retention(random),
        lingers_s=random.choice((0.0, 0.0, 1.0, 3.0)),
        abrupt=random.random() < 0.7,
        claims=random.random() < 0.5,
        sleeps=random.choice((0.0, 0.5, 1.0)),
        tier=_tier_settings(random),
        vacuums_first=random.random() < 0.5,
    )
    return _with_a_sleeper(random, found) if random.random() < 0.1 else found


def _with_a_sleeper(random: Chance, found: PipelineScenario) -> PipelineScenario:
    """The only driver falls asleep with all its segments written; vacuum comes, and then it wakes up and commits."""
    return replace(
        found,
        kind="diskless",
        kinds=("diskless",),
        trimmers=0,
        retainers=0,
        meta=replace(found.meta, refused=0.0),
        tier=msgspec.structs.replace(found.tier, min_age_ms=0, min_bytes=0),
        bursts=2,
        drivers=1,
        vacuums=1,
        vacuums_first=True,
        sleeps=1.0,
        processes=replace(found.processes, aims=(random.choice(LAST_TIER_STEPS),), pauses=1.0),
    )


def _tier_settings(random: Chance) -> TierSettings:
    """Small enough to cut, merge, and come to every limit with a few batches."""
    return TierSettings(
        segment_bytes=random.choice((200, 1500, 4000, 1 << 20)),
        min_age_ms=random.choice((0, 0, 1000)),
        min_bytes=random.choice((0, 0, 400)),
        max_wait_ms=random.choice((0, 5000)),
        max_runs=random.choice((2, 5, 100_000)),
        merge_segments=random.choice((2, 2, 3)),
        task_bytes=random.choice((1, 500, 1 << 20)),
    )


def _retention(random: Chance) -> tuple[tuple[str, str], ...]:
    """Clients count time from 1970 on, nodes from their epoch."""
    keep_ms = random.choice((None, 2_000, 20_000, 2_000_000))
    keep_bytes = random.choice((-1, 300, 1500))
    keep = -1 if keep_ms is None else EPOCH_MS - FIRST_TIMESTAMP_MS + keep_ms
    return (("retention.ms", str(keep)), ("retention.bytes", str(keep_bytes)))


def _process_faults(random: Chance) -> ProcessFaults:
    rare = [TIER_STEPS, RECOVER_STEPS, VACUUM_STEPS, RARE_STEPS["trimmers"], RARE_STEPS["reconfigurers"]]
    drawn = scenario.process_faults(random, PIPELINE_STEPS, rare)
    if not drawn.targets:
        return drawn
    aims = {
        *random.sample(TIER_STEPS, random.randint(0, 3)),
        *RECOVER_STEPS,
        random.choice((*VACUUM_STEPS, *FORGET_STEPS, "chain:trim")),
        *random.sample(READ_STEPS, random.choice((0, 0, 2))),
        *random.sample(LAST_TIER_STEPS, random.choice((0, 1))),
    }
    return replace(drawn, aims=tuple(sorted(aims)))
