"""The search for the highest rate that is kept: up by a factor until a step breaks, then between the last two. Pure."""

from __future__ import annotations

import msgspec

from catena.loadtest.scenario import Capacity

WORTH_A_STEP = 1.03
"""What is nearer than this to what is known is not tried."""
MORE_DOWN = 2
"""Steps, where even the first was too much."""
LATE_SHARE = 0.25
"""Of the p99 that is allowed: hammers that are later than this by themselves spoil a step."""
A_WHOLE_CORE = 0.9
"""Of CPU: a hammer hands over in one thread, and can't take more."""
FULL_HOST = 0.95
BLAMED = {
    "hammers": "hammers could do no more, so the cluster may take more: use more producers, or another machine for it",
    "machine": "nodes and hammers take CPU from each other on this machine, so the cluster alone would take more",
    "max_mb_s": "capacity.max_mb_s was reached, so the cluster may take more",
}
"""Limits that are not those of the cluster, and what they mean."""


class Step(msgspec.Struct, frozen=True):
    """What came of a rate."""

    rate_mb_s: float
    acked_mb_s: float
    p50_ms: float | None
    p99_ms: float | None
    error_share: float
    """Of what was due: failed, unknown or dropped."""
    t: float = 0.0
    """When it began."""
    late_ms: float | None = None
    """The p99 of how late hammers got to what was due: that is not the cluster's doing."""
    hammer_cores: float | None = None
    """CPU of the busiest producer."""
    host_busy: float | None = None
    """The share of the host's CPU that was taken, by whomever."""
    broke: str = ""
    """Why it is too much; empty: it is not."""
    limit: str = ""
    """Whose fault that is: `cluster`, `hammers`, or `machine` where they take CPU from each other; empty: nobody's."""


def limit_of(step: Step, limits: Capacity) -> str:
    """Whose fault it is that a step broke. Hammers that are on time have the cluster to wait for, and nothing else."""
    if step.late_ms is None or step.late_ms <= limits.p99_ms * LATE_SHARE:
        return "cluster"
    is_bound = step.hammer_cores is not None and step.hammer_cores >= A_WHOLE_CORE
    is_full = step.host_busy is not None and step.host_busy >= FULL_HOST
    return "machine" if is_full and not is_bound else "hammers"


def judged(step: Step, limits: Capacity) -> Step:
    reasons = []
    if step.p99_ms is None:
        reasons.append("nothing was acked")
    elif step.p99_ms > limits.p99_ms:
        reasons.append(f"p99 {step.p99_ms:,.0f} ms is above {limits.p99_ms:,.0f} ms")
    if step.error_share > limits.error_share:
        reasons.append(f"{step.error_share:.2%} failed or were dropped")
    if step.acked_mb_s < step.rate_mb_s * limits.reached_share:
        reasons.append(f"only {step.acked_mb_s:.2f} of {step.rate_mb_s:.2f} MB/s were acked")
    limit = limit_of(step, limits) if reasons else ""
    if limit in BLAMED:
        reasons.append(f"hammers were late themselves, {step.late_ms or 0.0:,.0f} ms at p99")
    return msgspec.structs.replace(step, broke="; ".join(reasons), limit=limit)


class Search:
    def __init__(self, how: Capacity) -> None:
        self._how = how
        self.steps: list[Step] = []

    @property
    def best(self) -> Step | None:
        """The highest rate that was kept."""
        return max((step for step in self.steps if not step.broke), key=lambda step: step.rate_mb_s, default=None)

    @property
    def lowest_broken(self) -> Step | None:
        return min((step for step in self.steps if step.broke), key=lambda step: step.rate_mb_s, default=None)

    @property
    def limit(self) -> str:
        """What keeps the rate from being higher than the best; empty: the search was not finished."""
        if (broken := self.lowest_broken) is not None:
            return broken.limit
        return "max_mb_s" if self.best is not None and self.best.rate_mb_s >= self._how.max_mb_s else ""

    @property
    def next_rate(self) -> float | None:
        """None: it is found, or even the least is too much."""
        how, best, broken = self._how, self.best, self.lowest_broken
        if not self.steps:
            return min(how.start_mb_s, how.max_mb_s)
        if broken is None:
            assert best is not None
            return min(best.rate_mb_s * how.factor, how.max_mb_s) if best.rate_mb_s < how.max_mb_s else None
        tried = len(self.steps) - 1 - next(number for number, step in enumerate(self.steps) if step.broke)
        if best is None:
            # Too much from the start: down by the same factor, a few times.
            return broken.rate_mb_s / how.factor if tried < how.halvings + MORE_DOWN else None
        if tried >= how.halvings or broken.rate_mb_s / best.rate_mb_s < WORTH_A_STEP:
            return None
        return (best.rate_mb_s + broken.rate_mb_s) / 2

    def add(self, step: Step) -> Step:
        step = judged(step, self._how)
        self.steps.append(step)
        return step
