"""What is to be tiered, merged and dropped: pure, from what the meta store says.

    boundary
       |  run  run  run  run  run  run  run  run ...  (too young)
       [--- segment ---)[--- segment ---)[ left for later

Runs are tiered in order and without gaps from the boundary on, since the boundary is one number. A segment is cut once
it has reached its size; what is left over waits for more until it is old, and is tiered in a small segment then.
Small neighbours are merged later, so that a log has few segments however slowly it grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.records import IndexEntry
from catena.pipeline.settings import TierSettings
from catena.types import Offset


class Merge(NamedTuple):
    """Neighbours that become one segment: places [start, end) in the manifest."""

    start: int
    end: int


def choose_runs(
    entries: Sequence[IndexEntry],
    boundary: Offset,
    now_ms: int,
    settings: TierSettings,
    force_up_to: Offset | None = None,
) -> list[list[IndexEntry]]:
    """The runs of each segment that is to be made; `entries` are those of the index, in order, from the boundary on.

    Runs that begin below `force_up_to` are taken whatever their age and size.
    """
    segments: list[list[IndexEntry]] = []
    for segment in _cut(_eligible(entries, boundary, now_ms, settings, force_up_to), settings.segment_bytes):
        is_forced = force_up_to is not None and segment[0].start_offset < force_up_to
        is_old = now_ms - segment[0].created_at_ms >= settings.max_wait_ms
        if not is_forced and not is_old and sum(map(size_of, segment)) < settings.min_bytes:
            break
        segments.append(segment)
    return segments


def choose_merges(segments: Sequence[SegmentInfo], settings: TierSettings, cleaned_up_to: Offset = 0) -> list[Merge]:
    """Groups of small neighbours. What was compacted, up to an offset, and what was not yet stay apart: so it is known
    how much that is."""
    merges: list[Merge] = []
    first, size = 0, 0
    for number, segment in enumerate(segments):
        ends = not _is_small(segment, settings) or size + segment.size > settings.segment_bytes
        if number > first and (ends or segment.base == cleaned_up_to):
            merges += _merge(first, number, size, settings)
            first, size = number, 0
        if _is_small(segment, settings):
            size += segment.size
        else:
            first, size = number + 1, 0
    return merges + _merge(first, len(segments), size, settings)


def kept_segments(segments: Sequence[SegmentInfo], start: Offset) -> tuple[SegmentInfo, ...]:
    """Those that hold something at or above the log's start."""
    return tuple(segment for segment in segments if segment.end > start)


def size_of(entry: IndexEntry) -> int:
    """Bytes of a run; one of older data, which does not tell, counts as a segment's least."""
    return entry.byte_length if entry.byte_length is not None else 1 << 20


def _is_small(segment: SegmentInfo, settings: TierSettings) -> bool:
    return segment.size * 2 <= settings.segment_bytes


def _merge(start: int, end: int, size: int, settings: TierSettings) -> list[Merge]:
    is_full = size * 2 > settings.segment_bytes
    return [Merge(start, end)] if end - start >= (2 if is_full else settings.merge_segments) else []


def _eligible(
    entries: Sequence[IndexEntry],
    boundary: Offset,
    now_ms: int,
    settings: TierSettings,
    force_up_to: Offset | None,
) -> Iterator[IndexEntry]:
    following = boundary
    for entry in entries[: settings.max_runs]:
        is_forced = force_up_to is not None and entry.start_offset < force_up_to
        if entry.start_offset != following or (not is_forced and now_ms - entry.created_at_ms < settings.min_age_ms):
            return
        following = entry.end_offset + 1
        yield entry


def _cut(entries: Iterator[IndexEntry], segment_bytes: int) -> Iterator[list[IndexEntry]]:
    segment: list[IndexEntry] = []
    size = 0
    for entry in entries:
        if segment and size + size_of(entry) > segment_bytes:
            yield segment
            segment, size = [], 0
        segment.append(entry)
        size += size_of(entry)
    if segment:
        yield segment
