"""When a log is compacted, which part of it, and which marks of deleted keys go: pure, by Kafka's rules.

    base           cleaned up to           cleanable end     boundary
      [ clean segments )[ dirty segments    )[ too young      )[ diskless: never compacted

A log is due once the dirty part is more than `min.cleanable.dirty.ratio` of what would be rewritten, or once its oldest
record is older than `max.compaction.lag.ms`. Segments with a record younger than `min.compaction.lag.ms`, and all
behind them, are left alone.

A compaction looks at everything from the base to the cleanable end, the clean part too: a record stays if it is the
last of its key there. The **mark of a deleted key** (a record without a value) that is the last of its key stays for
`delete.retention.ms` after it was first cleaned, so that whoever reads the log from its beginning in that time sees it.
Offsets are cleaned in their order: those whose marks may go lie below one offset.

The work is divided into groups of segments and buckets of keys, which the settings bound; a task holds one of them. For
each group and each bucket there is a part that the driver has to know of, so both grow with the log and their product
with its square. A log that would have more than `MAX_PARTS` gets groups and buckets that are larger by the same factor:
a terabyte of small records some ten times as large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from catena.formats.manifest import Cleaning, Manifest
from catena.formats.segment import SegmentInfo
from catena.pipeline.plan import kept_segments
from catena.pipeline.settings import CompactSettings
from catena.types import Offset
from catena.virtual_log.topic_configs import TopicSettings

MAX_PARTS = 250_000
"""Of one partition: groups times buckets."""
MAX_CLEANINGS = 64
"""That a manifest tells apart. Past it the two oldest are told as one, and marks in the first stay longer."""


class Choice(NamedTuple):
    """What is to be compacted."""

    groups: tuple[tuple[SegmentInfo, ...], ...]
    """Of neighbouring segments, from the first that the log still needs on; each becomes one segment."""
    rest: tuple[SegmentInfo, ...]
    """What is left alone."""
    tombstones_below: Offset
    """Marks of deleted keys go that lie below."""
    buckets: int
    """Parts that keys are divided into, by their hash."""
    dirty_bytes: int

    @property
    def parts(self) -> int:
        """What the driver has to know of, at the same time."""
        return len(self.groups) * self.buckets

    @property
    def bytes(self) -> int:
        return sum(segment.size for group in self.groups for segment in group)

    @property
    def records(self) -> int:
        return sum(segment.record_count for group in self.groups for segment in group)

    @property
    def base(self) -> Offset:
        return self.groups[0][0].base

    @property
    def end(self) -> Offset:
        return self.groups[-1][-1].end


def choose(
    manifest: Manifest, start: Offset, now_ms: int, topic: TopicSettings, settings: CompactSettings
) -> Choice | None:
    """None: the log, which starts at `start`, is not due."""
    segments = kept_segments(manifest.segments, start)
    clean = sum(segment.end <= manifest.cleaned_up_to for segment in segments)
    end = clean
    lag_ms = topic.min_compaction_lag_ms
    # Without a lag nobody asks how old records are; a clock that is ahead must not keep them for ever.
    while end < len(segments) and (not lag_ms or _newest_ms(segments[end]) <= now_ms - lag_ms):
        end += 1
    dirty = segments[clean:end]
    if not dirty or not _is_due(segments[:clean], dirty, now_ms, topic):
        return None
    groups, buckets = divide(segments[:end], settings)
    return Choice(
        groups,
        segments[end:],
        tombstones_below(manifest.cleaned, now_ms, topic.delete_retention_ms),
        buckets,
        sum(segment.size for segment in dirty),
    )


def divide(
    segments: Sequence[SegmentInfo], settings: CompactSettings
) -> tuple[tuple[tuple[SegmentInfo, ...], ...], int]:
    """Groups, and how many buckets."""
    records = sum(segment.record_count for segment in segments)
    for doubled in range(64):
        scaled = CompactSettings(
            settings.group_bytes << doubled, settings.group_records << doubled, settings.bucket_records << doubled
        )
        groups = tuple(group(segments, scaled))
        buckets = max(1, -(-records // scaled.bucket_records))
        if len(groups) * buckets <= MAX_PARTS:
            return groups, buckets
    raise AssertionError("by now there is one group, and one bucket")


def group(segments: Sequence[SegmentInfo], settings: CompactSettings) -> Iterator[tuple[SegmentInfo, ...]]:
    """What one task rewrites."""
    taken: list[SegmentInfo] = []
    size = records = 0
    for segment in segments:
        size += segment.size
        records += segment.record_count
        if taken and (size > settings.group_bytes or records > settings.group_records):
            yield tuple(taken)
            taken, size, records = [], segment.size, segment.record_count
        taken.append(segment)
    if taken:
        yield tuple(taken)


def tombstones_below(cleanings: Sequence[Cleaning], now_ms: int, delete_retention_ms: int) -> Offset:
    ends = [each.end for each in cleanings if each.at_ms <= now_ms - delete_retention_ms]
    return max(ends, default=0)


def cleanings_after(cleanings: Sequence[Cleaning], base: Offset, end: Offset, now_ms: int) -> tuple[Cleaning, ...]:
    """What a manifest from `base` on says once it is cleaned up to `end`."""
    known = [each for each in cleanings if base < each.end < end]
    # No clock that was set back makes marks go earlier than those before them.
    latest_ms = max([now_ms, *(each.at_ms for each in known)])
    return (*known, Cleaning(end, latest_ms))[-MAX_CLEANINGS:]


def _is_due(clean: Sequence[SegmentInfo], dirty: Sequence[SegmentInfo], now_ms: int, topic: TopicSettings) -> bool:
    if topic.max_compaction_lag_ms is not None and _oldest_ms(dirty[0]) < now_ms - topic.max_compaction_lag_ms:
        return True
    dirty_bytes = sum(segment.size for segment in dirty)
    return dirty_bytes > topic.min_dirty_ratio * (dirty_bytes + sum(segment.size for segment in clean))


def _newest_ms(segment: SegmentInfo) -> int:
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.appended_at_ms


def _oldest_ms(segment: SegmentInfo) -> int:
    return segment.min_timestamp if segment.min_timestamp >= 0 else segment.appended_at_ms
