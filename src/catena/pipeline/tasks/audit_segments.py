"""Check one segment, every byte of it, against what the manifest says; a little at a time."""

from __future__ import annotations

import msgspec

from catena.errors import CatenaError, Corrupt, ObjectMissing, StoreRefused
from catena.formats import segment as segments
from catena.formats.batch_scan import Source, Totals, count_records, scan
from catena.formats.segment import Footer, Interval, SegmentHeader, SegmentIndex, SegmentInfo
from catena.objects.base import ObjectStore, Range
from catena.pipeline.defects import Kind
from catena.pipeline.tasks.audit_unit import Unit
from catena.pipeline.tasks.bodies import neighbours
from catena.types import Buffer

READ_BYTES = 8 << 20
"""Of neighbouring intervals, with one call; one that is larger alone."""


async def check_segment(objects: ObjectStore, cluster_id: str, info: SegmentInfo, since_ms: int, unit: Unit) -> None:
    """What is found is in the unit. Nothing in the segment was appended before `since_ms`, as far as one knows."""
    try:
        await _check(objects, cluster_id, info, since_ms, unit)
    except ObjectMissing as error:
        unit.lost("missing_object", error)
    except Corrupt as error:
        unit.lost("truncated_object", error)
    except CatenaError as error:
        unit.failed(error)


async def _check(objects: ObjectStore, cluster_id: str, info: SegmentInfo, since_ms: int, unit: Unit) -> None:
    size = (await objects.head(info.key)).size
    if size < info.size:
        unit.lost("truncated_object", f"it has {size} bytes, and {info.size} by the manifest")
        return
    if size > info.size:
        unit.found("segment_mismatch", f"it has {size} bytes, and {info.size} by the manifest")
    head, rest = await objects.get_ranges(
        info.key, [Range(0, info.body_at), Range(info.index_at, info.size - info.index_at)]
    )
    header = _header(info, head, cluster_id, unit)
    footer = _footer(info, rest, unit)
    is_as_said = header is not None and footer is not None and _is_as_said(info, head, header, footer, unit)
    try:
        index = segments.decode_index(info, memoryview(rest)[: info.index_length])
    except Corrupt as error:
        unit.lost("corrupt_index", error)
        return
    totals = await _check_intervals(objects, info, index, since_ms, unit)
    if info.is_compacted:
        unit.trail.break_off()  # nobody can tell which sequence numbers were of records that are removed
    if totals is not None and (is_as_said or header is None or footer is None):
        try:
            segments.check_totals(info, totals)
        except Corrupt as error:
            unit.found("count_mismatch" if totals.batches != info.batches else "wrong_timestamp", error)
        try:
            segments.check_records(info, unit.records)
        except Corrupt as error:
            unit.found("count_mismatch", error)


def _header(info: SegmentInfo, head: Buffer, cluster_id: str, unit: Unit) -> SegmentHeader | None:
    try:
        header = segments.decode_header(head, f"object {info.key}")
    except (Corrupt, StoreRefused) as error:
        unit.found("corrupt_header", error)
        return None
    tp = unit.tp
    if (header.cluster_id, header.topic_id, header.topic, header.partition) != (
        cluster_id,
        tp.topic_id,
        tp.topic,
        tp.partition,
    ):
        unit.found(
            "foreign_segment",
            f"it is a segment of {header.topic}/{header.partition}, id {header.topic_id}, "
            f"of the cluster {header.cluster_id}",
        )
    return header


def _footer(info: SegmentInfo, rest: Buffer, unit: Unit) -> Footer | None:
    try:
        return segments.decode_footer(rest, info.size, f"object {info.key}")
    except Corrupt as error:
        unit.found("corrupt_footer", error)
        return None


def _is_as_said(info: SegmentInfo, head: Buffer, header: SegmentHeader, footer: Footer, unit: Unit) -> bool:
    found = segments.describe(info.key, info.size, segments.header_bytes(head), header, footer)
    said = _fields(info)
    differ = {name: (value, said[name]) for name, value in _fields(found).items() if value != said[name]}
    if not differ:
        return True
    kind: Kind = "wrong_timestamp" if differ.keys() <= {"max_timestamp", "min_timestamp"} else "segment_mismatch"
    told = ", ".join(f"{name} is {value}, and {other} by the manifest" for name, (value, other) in differ.items())
    unit.found(kind, told)
    return False


def _fields(info: SegmentInfo) -> dict[str, object]:
    return msgspec.structs.asdict(info)


async def _check_intervals(
    objects: ObjectStore, info: SegmentInfo, index: SegmentIndex, since_ms: int, unit: Unit
) -> Totals | None:
    """What they add up to; None if one is unsound."""
    totals: Totals | None = Totals()
    number = 0
    while number < len(index):
        intervals = neighbours(index, number, READ_BYTES)
        first, last = intervals[0], intervals[-1]
        wanted = Range(first.position, last.position + last.length - first.position)
        (body,) = await objects.get_ranges(info.key, [wanted])
        view = memoryview(body)
        for interval in intervals:
            part = view[interval.position - first.position :][: interval.length]
            found = _check_interval(info, interval, part, since_ms, unit)
            totals = totals.plus(found) if totals is not None and found is not None else None
        number += len(intervals)
    return totals


def _check_interval(
    info: SegmentInfo, interval: Interval, body: memoryview, since_ms: int, unit: Unit
) -> Totals | None:
    try:
        found = segments.check_interval(info.key, interval, body)
    except Corrupt as error:
        unit.lost(_kind(info, interval, body), error, interval.offset, interval.end - 1)
        return None
    unit.batches += found.batches
    unit.bytes += len(body)
    unit.offsets += interval.end - interval.offset
    unit.records += count_records(body)
    if not info.is_compacted:
        unit.broken(unit.trail.add(body, interval.offset, since_ms, max(since_ms, info.appended_at_ms)))
    return found


def _kind(info: SegmentInfo, interval: Interval, body: memoryview) -> Kind:
    """Why an interval was refused."""
    try:
        found = scan([body], [Source(info.key, interval.position)], interval.offset)
    except Corrupt:
        return "corrupt_batch"
    if found.intervals[3] != interval.crc:
        return "corrupt_batch"
    return "count_mismatch" if found.end != interval.end else "wrong_timestamp"
