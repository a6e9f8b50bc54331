"""How far tiering is behind, and whose jobs are in its way: from what passes read anyway.

A run of the WAL that is older than `pipeline.tier.min_age_ms` could be tiered. Less than `min_bytes` of a partition
waits up to `max_wait_ms` for more to come, so some lag is normal; a lag in time that goes above that is not.

A pass looks at `max_runs` of a partition, and what lies behind them is not counted. A partition that is not looked at,
because it is set aside say, keeps what was last seen of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from catena.loglets.diskless.records import IndexEntry
from catena.pipeline.plan import size_of
from catena.pipeline.records import State
from catena.types import TopicPartition


class Backlog(NamedTuple):
    """Of one partition: what could be tiered, and is not."""

    bytes: int = 0
    records: int = 0
    since_ms: int = 0
    """When the oldest of it was appended; 0: nobody knows."""


def backlog_of(entries: Sequence[IndexEntry]) -> Backlog:
    return Backlog(
        sum(map(size_of, entries)),
        sum(entry.msg_count for entry in entries),
        min((entry.created_at_ms for entry in entries if entry.created_at_ms), default=0),
    )


class Lag(msgspec.Struct, frozen=True):
    """Of all partitions, and of the one that is most behind."""

    partitions: int = 0
    """That are behind."""
    bytes: int = 0
    bytes_max: int = 0
    records: int = 0
    records_max: int = 0
    seconds_max: float = 0.0
    """Since when the oldest record could have been tiered."""


class Lags:
    def __init__(self) -> None:
        self._backlogs: dict[TopicPartition, Backlog] = {}
        self._pending: dict[TopicPartition, State] = {}

    def waits(self, tp: TopicPartition, backlog: Backlog) -> None:
        if backlog.records:
            self._backlogs[tp] = backlog
        else:
            self._backlogs.pop(tp, None)

    def found(self, tp: TopicPartition, state: State | None) -> None:
        """The record of a job, of another driver or left behind; None: there is none, or not any more."""
        if state is not None:
            self._pending[tp] = state
        else:
            self._pending.pop(tp, None)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """The others are gone."""
        self._backlogs = {tp: each for tp, each in self._backlogs.items() if tp in partitions}
        self._pending = {tp: each for tp, each in self._pending.items() if tp in partitions}

    def lag(self, now_ms: int, min_age_ms: int) -> Lag:
        backlogs = self._backlogs.values()
        oldest_ms = min((each.since_ms for each in backlogs if each.since_ms), default=now_ms)
        return Lag(
            partitions=len(backlogs),
            bytes=sum(each.bytes for each in backlogs),
            bytes_max=max((each.bytes for each in backlogs), default=0),
            records=sum(each.records for each in backlogs),
            records_max=max((each.records for each in backlogs), default=0),
            seconds_max=max(0, now_ms - oldest_ms - min_age_ms) / 1000,
        )

    @property
    def pending(self) -> dict[State, int]:
        """How many partitions have the record of a job, by its state."""
        return dict(Counter(self._pending.values()))
