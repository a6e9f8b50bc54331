"""Check the runs of one WAL blob: header, sections and batches against what the index says.

The header names each partition's section and its CRC. That CRC covers what a batch's own leaves out, so whole sections
are read, also where a run is a part of one. Objects of older data have no such header, and their batches are checked
alone. An object that ends too early is read run by run, to tell those that are lost from those that are not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from crc32c import crc32c

from catena.errors import CatenaError, Corrupt, ObjectMissing, StoreRefused
from catena.formats import wal_blob
from catena.formats.batch_scan import Source, scan
from catena.formats.records import NO_TIMESTAMP
from catena.formats.sealed_json import FRAME_BYTES
from catena.formats.wal_blob import SectionHeader, WalHeader
from catena.loglets.diskless.blobs import as_batches, object_key
from catena.loglets.diskless.records import IndexEntry
from catena.meta import keys
from catena.objects.base import ObjectStore, Range
from catena.objects.ranges import read_ranges
from catena.pipeline.tasks.audit_unit import Unit
from catena.types import Buffer

HEADER_GUESS_BYTES = 32 << 10
COALESCE_GAP_BYTES = 16 << 10
COALESCE_MAX_BYTES = 32 << 20

_body_offset = attrgetter("body_offset")


class Run(NamedTuple):
    entry: IndexEntry
    unit: Unit


class _Place(NamedTuple):
    """A section in its blob."""

    start: int
    section: SectionHeader

    @property
    def end(self) -> int:
        return self.start + self.section.body_length


def blob_of(entry: IndexEntry) -> str:
    return object_key(entry.data_key)


async def check_blob(objects: ObjectStore, cluster_id: str, runs: Sequence[Run]) -> None:
    """What is found is in the units. All runs are of one object, and small enough to be held together."""
    key = blob_of(runs[0].entry)
    try:
        if runs[0].entry.data_key.startswith(keys.WAL_BLOBS):
            await _check_shared(objects, cluster_id, key, runs)
        else:
            await _check_alone(objects, key, runs)
    except ObjectMissing as error:
        for run in runs:
            run.unit.lost("missing_object", error)
    except Corrupt as error:
        try:
            await _check_cut_off(objects, key, runs, error)
        except CatenaError as failure:
            _failed(runs, failure)
    except CatenaError as failure:
        _failed(runs, failure)


async def _check_shared(objects: ObjectStore, cluster_id: str, key: str, runs: Sequence[Run]) -> None:
    wanted = [_range(run.entry) for run in runs]
    first = await _read_first(objects, key, wanted)
    try:
        first = await _with_header(objects, key, first)
        header: WalHeader | None = wal_blob.decode_header(first)
    except (Corrupt, StoreRefused) as error:
        header = None
        for run in runs:
            run.unit.found("corrupt_header", f"object {key}: {error}")
    found = [_find(header, each) for each in wanted]
    ranges = [each if at is None else _extent(at) for each, at in zip(wanted, found, strict=True)]
    bodies = await _read_more(objects, key, first, ranges)
    unsound: set[int] = set()
    sections: dict[int, tuple[Run, _Place, int | None, Buffer]] = {}
    for run, each, at, extent, body in zip(runs, wanted, found, ranges, bodies, strict=True):
        if header is not None:
            _check_header(run, cluster_id, header, at)
        crc = check_run(run, memoryview(body)[each.start - extent.start :][: run.entry.byte_length])
        if at is not None and crc is None:
            unsound.add(at.start)
        elif at is not None:
            sections[at.start] = (run, at, crc if each == extent else None, body)
    for run, at, known_crc, body in sections.values():
        if at.start not in unsound:
            _check_section(run, at, crc32c(body) if known_crc is None else known_crc)


async def _check_alone(objects: ObjectStore, key: str, runs: Sequence[Run]) -> None:
    """Older data: what its headers say, if it has any, is not specified."""
    if any(run.entry.byte_length is None for run in runs):
        whole = memoryview((await objects.get(key)).data)
        bodies: list[Buffer] = [whole[run.entry.byte_offset :][: run.entry.byte_length] for run in runs]
    else:
        ranges = [_range(run.entry) for run in runs]
        bodies = await read_ranges(objects, key, ranges, COALESCE_GAP_BYTES, COALESCE_MAX_BYTES)
    for run, body in zip(runs, bodies, strict=True):
        check_run(run, body)


async def _check_cut_off(objects: ObjectStore, key: str, runs: Sequence[Run], error: Corrupt) -> None:
    try:
        size = (await objects.head(key)).size
    except ObjectMissing as missing:
        for run in runs:
            run.unit.lost("missing_object", missing)
        return
    for run in runs:
        wanted = _range(run.entry)
        if wanted.start + wanted.length > size:
            run.unit.lost("truncated_object", f"object {key} has {size} bytes, and the run ends at {sum(wanted)}")
            continue
        (body,) = await objects.get_ranges(key, [wanted])
        check_run(run, body)
        run.unit.found("truncated_object", f"object {key} has {size} bytes; this run is whole: {error}")


def check_run(run: Run, raw: Buffer) -> int | None:
    """The CRC of its batches, if they are sound and as many as the index says."""
    entry, unit = run
    try:
        body = as_batches(entry, raw)
        found = scan([body], [Source(unit.key, entry.byte_offset)], entry.start_offset)
    except Corrupt as error:
        unit.lost("corrupt_batch", error)
        return None
    if found.end != entry.end_offset + 1:
        unit.lost(
            "count_mismatch", f"its batches end before offset {found.end}, and by the index at {entry.end_offset}"
        )
        return None
    if entry.max_timestamp != found.totals.max_timestamp and not _is_untold(entry):
        unit.found(
            "wrong_timestamp",
            f"the greatest time is {found.totals.max_timestamp}, and the index says {entry.max_timestamp}",
        )
    unit.batches, unit.bytes, unit.offsets = found.totals.batches, len(raw), entry.msg_count
    unit.broken(unit.trail.add(body, entry.start_offset, entry.created_at_ms, entry.created_at_ms))
    return found.intervals[3] if found.intervals else 0


def _is_untold(entry: IndexEntry) -> bool:
    return entry.max_timestamp == NO_TIMESTAMP and not entry.append_id


def _check_header(run: Run, cluster_id: str, header: WalHeader, at: _Place | None) -> None:
    entry, unit = run
    if header.cluster_id != cluster_id:
        unit.found("foreign_run", f"its blob is of the cluster {header.cluster_id}")
    if at is None:
        unit.found(
            "header_mismatch", f"no section of its blob holds the {entry.byte_length} bytes from {entry.byte_offset} on"
        )
        return
    section = at.section
    if (section.topic_id, section.partition) != (unit.tp.topic_id, unit.tp.partition):
        unit.found("foreign_run", f"its section is of {section.topic}/{section.partition}, id {section.topic_id}")
        return
    said = (header.created_at_ms, section.topic, section.encoding)
    if said != (entry.created_at_ms, unit.tp.topic, entry.encoding) or entry.msg_count > section.msg_count:
        unit.found(
            "header_mismatch",
            f"the header of its blob says {section.msg_count} records of {section.topic} in {section.encoding} "
            f"at {header.created_at_ms}, and the index {entry.msg_count} in {entry.encoding} at {entry.created_at_ms}",
        )


def _check_section(run: Run, at: _Place, crc: int) -> None:
    """Where its batches are sound by themselves, the section as a whole may not be."""
    if f"{crc:08x}" != at.section.crc32c:
        run.unit.found(
            "corrupt_batch",
            f"object {run.unit.key}, bytes {at.start} to {at.end - 1} have CRC {crc:08x}, and the header says "
            f"{at.section.crc32c}: between or in front of batches a byte is wrong",
        )


async def _read_first(objects: ObjectStore, key: str, wanted: Sequence[Range]) -> Buffer:
    """All that is needed where that is most of the blob, else what the header probably has."""
    end = max(map(sum, wanted))
    if sum(each.length for each in wanted) * 2 < end:
        end = min(*(each.start for each in wanted), HEADER_GUESS_BYTES)
    (first,) = await objects.get_ranges(key, [Range(0, max(end, FRAME_BYTES))])
    return first


async def _with_header(objects: ObjectStore, key: str, first: Buffer) -> Buffer:
    needed = wal_blob.header_bytes(first)
    if needed <= len(first):
        return first
    (header,) = await objects.get_ranges(key, [Range(0, needed)])
    return header


async def _read_more(objects: ObjectStore, key: str, first: Buffer, ranges: Sequence[Range]) -> list[Buffer]:
    """Each range, out of what was read already as far as it is there."""
    missing = [each for each in dict.fromkeys(ranges) if sum(each) > len(first)]
    read = await read_ranges(objects, key, missing, COALESCE_GAP_BYTES, COALESCE_MAX_BYTES) if missing else []
    more = dict(zip(missing, read, strict=True))
    view = memoryview(first)
    return [more[each] if each in more else view[each.start : sum(each)] for each in ranges]


def _find(header: WalHeader | None, wanted: Range) -> _Place | None:
    """The section that holds these bytes."""
    if header is None:
        return None
    sections, bodies_at = header.partitions, header.header_bytes
    number = bisect_right(sections, wanted.start - bodies_at, key=_body_offset) - 1
    while number >= 0 and sections[number].body_length == 0:
        number -= 1
    if number < 0:
        return None
    place = _Place(bodies_at + sections[number].body_offset, sections[number])
    return place if sum(wanted) <= place.end else None


def _range(entry: IndexEntry) -> Range:
    return Range(entry.byte_offset, entry.byte_length or 0)


def _extent(at: _Place) -> Range:
    return Range(at.start, at.section.body_length)


def _failed(runs: Sequence[Run], error: CatenaError) -> None:
    for run in runs:
        run.unit.failed(error)
