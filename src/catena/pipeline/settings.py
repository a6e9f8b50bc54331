"""Settings of the pipeline's jobs."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class TierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    segment_bytes: Positive = 128 << 20
    """What segments are cut to, and merged up to."""
    min_age_ms: Natural = 60_000
    """What is younger stays where it is: it is read from caches, and may still grow to a larger segment."""
    min_bytes: Natural = 16 << 20
    """Less than this is not tiered until it is `max_wait_ms` old."""
    max_wait_ms: Natural = 3_600_000
    max_runs: Positive = 100_000
    """Of one partition in one pass."""
    merge_segments: Annotated[int, msgspec.Meta(ge=2)] = 8
    """So many small neighbours are merged; fewer when they fill a segment."""
    task_bytes: Positive = 256 << 20
    """What a task holds in memory, about."""


class PipelineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tier: TierSettings = TierSettings()
