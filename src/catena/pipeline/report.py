"""What a run of a job did, for people and for programs."""

from __future__ import annotations

from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from catena.pipeline.compact_pass import CompactionReport
from catena.pipeline.tier_pass import PartitionReport
from catena.pipeline.work import Usage


class OfPartition(Protocol):
    @property
    def outcome(self) -> str: ...


R = TypeVar("R", bound=OfPartition)


class PassReport(msgspec.Struct, Generic[R], frozen=True):
    job: str
    started_at_ms: int
    duration_ms: int
    dry_run: bool
    partitions: tuple[R, ...]
    """Those on which there was something to do, or that failed."""
    idle: int
    executors: dict[str, Usage]
    """By who did the tasks: what they asked of the object store."""
    driver: Usage
    """What the driver asked of it: manifests, and no data."""

    @property
    def left_to_others(self) -> int:
        return sum(each.outcome in ("busy", "stale") for each in self.partitions)

    @property
    def failed(self) -> int:
        return sum(each.outcome == "failed" for each in self.partitions)


RunReport: TypeAlias = PassReport[PartitionReport]
CompactRunReport: TypeAlias = PassReport[CompactionReport]
