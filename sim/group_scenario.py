"""What one seed of the group scenario turns on; swarm style, as `scenario` does it.

Most seeds are stormy: any fault, and members that come, go, stop and die. Some are calm: nothing fails and everybody is
well, but once all groups are stable the coordinator of one dies, freezes for a while, or leaves. There a rebalance is a
cost that can be counted.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from sim.group_steps import DELETE_STEPS, GROUP_STEPS
from sim.loop import Chance
from sim.scenario import ProcessFaults, StoreFaults, WatchFaults, maybe


class Incident(enum.Enum):
    """What befalls a coordinator in a calm seed."""

    DEATH = "death"
    STOP = "stop"
    """It freezes, longer than its members' sessions last but not as long as its own."""
    LEAVE = "leave"


@dataclass(frozen=True)
class GroupScenario:
    seed: int
    incident: Incident | None
    """None: a stormy seed."""
    transact: bool
    """Whether the store can; nodes of a cluster share one."""
    nodes: int
    given_ids: bool
    """Whether nodes have ids of their own, or take the lowest free one."""
    partitions: int
    """Of each of two topics."""
    classic_groups: int
    consumer_groups: int
    members: int
    """Of each group."""
    statics: float
    """Share of the members that have an instance id."""
    simple_committers: int
    readers: int
    deleters: int
    movers: int
    growers: int
    storm_s: float
    session_s: float
    """Of members; of nodes it is `node_ttl_ms`."""
    rebalance_s: float
    node_ttl_ms: int
    refresh_ms: int
    sweep_ms: int
    initial_rebalance_delay_s: float
    meta: StoreFaults
    watches: WatchFaults
    processes: ProcessFaults


def draw(seed: int) -> GroupScenario:
    random = Chance(f"group scenario {seed}")
    calm = random.random() < 0.15
    incident = random.choice(list(Incident)) if calm else None
    kinds = random.choice(((1, 0), (1, 0), (0, 1), (0, 1), (1, 1), (1, 1), (0, 0)))
    drawn = GroupScenario(
        seed=seed,
        incident=incident,
        transact=seed % 2 == 0,
        nodes=random.choice((2, 2, 3)),
        given_ids=random.random() < 0.5,
        partitions=random.randint(1, 3),
        classic_groups=max(kinds[0], int(calm)),
        consumer_groups=kinds[1],
        members=random.choice((1, 2, 2, 3, 3, 4)),
        statics=random.choice((0.0, 0.0, 0.5, 1.0)),
        simple_committers=0 if calm else random.randint(0, 2) if any(kinds) else 2,
        readers=random.randint(1, 2),
        deleters=0 if calm else int(random.random() < 0.5),
        movers=0 if calm else int(random.random() < 0.45),
        growers=0 if calm else int(random.random() < 0.2),
        storm_s=random.choice((8.0, 12.0, 20.0)),
        session_s=4.0 if calm else random.choice((6.0, 10.0)),
        rebalance_s=random.choice((8.0, 12.0)),
        node_ttl_ms=8_000 if incident is Incident.STOP else random.choice((1_500, 3_000)),
        refresh_ms=random.choice((300, 1_000)),
        sweep_ms=random.choice((3_000, 600_000)),
        initial_rebalance_delay_s=random.choice((0.0, 0.25)),
        meta=StoreFaults() if calm else _store_faults(random),
        watches=WatchFaults(lost=maybe(random, 0.3, 0.5), stale=maybe(random, 0.3, 0.5)),
        processes=ProcessFaults() if calm else _process_faults(random),
    )
    if not drawn.deleters or not drawn.processes.targets:
        return drawn
    processes = replace(
        drawn.processes,
        targets=drawn.processes.targets + DELETE_STEPS,
        aims=("transact:delete" if drawn.transact else random.choice(("state:delete", "offsets:delete")),),
    )
    return replace(drawn, processes=processes)


def _store_faults(random: Chance) -> StoreFaults:
    if random.random() < 0.25:
        return StoreFaults()
    return StoreFaults(
        refused=maybe(random, 0.4, 0.2),
        lost_request=maybe(random, 0.4, 0.2),
        lost_answer=maybe(random, 0.4, 0.25),
        late=maybe(random, 0.4, 0.25),
        slow=maybe(random, 0.4, 0.15),
        outage=maybe(random, 0.3, 0.01),
    )


def _process_faults(random: Chance) -> ProcessFaults:
    if random.random() < 0.1:
        return ProcessFaults()
    return ProcessFaults(
        step_strike=maybe(random, 0.6, 0.05),
        target_strike=random.choice((0.1, 0.3, 0.6)),
        targets=tuple(random.sample(GROUP_STEPS, 4)),
        pauses=random.choice((0.0, 0.3, 0.6, 0.9)),
        await_gap=random.choice((0, 300, 1000, 3000)),
        strikes_max=random.randint(1, 6),
        cancels=random.choice((0.0, 0.5, 1.0)),
        skew_ms=random.choice((0, 0, 50, 100_000)),
    )
