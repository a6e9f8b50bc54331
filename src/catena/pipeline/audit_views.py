"""Read what the meta store and the manifest say of a partition, in the order that `audit_checks` needs."""

from __future__ import annotations

from collections.abc import Sequence

from catena.errors import CatenaError, Corrupt, ObjectMissing, StoreRefused
from catena.formats import manifest as manifests
from catena.formats.manifest import Manifest
from catena.loglets.diskless.blobs import object_key
from catena.loglets.diskless.records import Control, IndexEntry, decode_control, decode_index_entry
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, Record
from catena.pipeline.audit_checks import View, tail_of
from catena.pipeline.defects import OF_CONTENT, Defect, defect
from catena.pipeline.records import CompactionRecord, decode_compaction
from catena.pipeline.site import Place, Site
from catena.types import Offset, TopicPartition
from catena.virtual_log.chain import Chain


class _Reading:
    """Of one partition; what can't be decoded is noted, and the rest goes on without it."""

    def __init__(self, site: Site, tp: TopicPartition) -> None:
        self.site = site
        self.tp = tp
        self.unreadable: list[Defect] = []

    async def compaction(self) -> CompactionRecord | None:
        record = await self.site.meta.get(keys.compaction(self.tp))
        try:
            return None if record is None else decode_compaction(record.key, record.value)
        except Corrupt as error:
            self._note(keys.compaction(self.tp), 0, 0, error)
            return None

    async def control(self) -> Control | None:
        record = await self.site.meta.get(keys.control(self.tp))
        try:
            return None if record is None else decode_control(record.key, record.value)
        except Corrupt as error:
            self._note(keys.control(self.tp), 0, 0, error)
            return None

    async def manifest(self, chain: Chain) -> Manifest | None:
        if chain.tiered is None:
            return None
        first, last = chain.tiered.base, max(chain.tiered.base, (chain.tiered.end or 0) - 1)
        key = chain.tiered.params.get("manifest")
        if not isinstance(key, str):
            what = "the tiered link names no manifest"
            self.unreadable.append(defect("manifest_mismatch", self.tp, keys.chain(self.tp), first, last, what))
            return None
        try:
            return manifests.decode((await self.site.objects.get(key)).data, f"object {key}")
        except ObjectMissing as error:
            self.unreadable.append(defect("missing_object", self.tp, key, first, last, str(error)))
        except (Corrupt, StoreRefused) as error:
            self.unreadable.append(defect("corrupt_manifest", self.tp, key, first, last, str(error)))
        return None

    async def entries(self, start: Offset, tail: Offset, limit: int) -> tuple[list[IndexEntry], bool]:
        """From the one that may hold `start` on, up to the tail or so many; and whether that is the tail."""
        found: list[IndexEntry] = []
        after, end = keys.index(self.tp, start), keys.after(keys.index_prefix(self.tp))
        page_size = min(limit, SCAN_LIMIT)
        while page := await self.site.meta.scan(after, end, page_size):
            for record in page:
                entry = self._decode(record)
                if entry is not None and entry.start_offset >= tail:
                    return found, True
                if entry is not None:
                    found.append(entry)
            if len(page) < page_size:
                break
            if len(found) >= limit:
                return found, False
            after = page[-1].key + "\0"
        return found, True

    async def entry(self, offset: Offset) -> IndexEntry | None:
        """The one that may hold `offset`."""
        tp = self.tp
        record = await self.site.meta.ceiling(keys.index(tp, offset), keys.after(keys.index_prefix(tp)))
        return None if record is None else self._decode(record)

    async def stale(self, boundary: Offset) -> list[IndexEntry]:
        page = await self.site.meta.scan(keys.index_prefix(self.tp), keys.index(self.tp, boundary))
        return [entry for record in page if (entry := self._decode(record)) is not None]

    def _decode(self, record: Record) -> IndexEntry | None:
        try:
            number = int(record.key.rpartition("/")[2])
        except ValueError:
            self._note(record.key, 0, 0, Corrupt(f"meta record {record.key} is no key of the index"))
            return None
        try:
            entry = decode_index_entry(record.key, record.value)
            if entry.end_offset != number or not 0 < entry.msg_count <= number + 1:
                told = f"{entry.msg_count} offsets up to {entry.end_offset}"
                raise Corrupt(f"meta record {record.key} says {told}")
        except Corrupt as error:
            self._note(record.key, number, number, error)
            return None
        return entry

    def _note(self, key: str, first: Offset, last: Offset, error: CatenaError) -> None:
        self.unreadable.append(defect("corrupt_record", self.tp, key, first, last, str(error)))


async def read_view(site: Site, place: Place, since: Offset, limit: int) -> View:
    """Raises Corrupt if the chain can't be decoded."""
    reading = _Reading(site, place.tp)
    compaction = await reading.compaction()
    claim = await site.meta.get(keys.compactor_claim(place.tp))
    chain, version = await site.chains.load(*place)
    if chain.deleted:
        return View(place.tp, site.cluster_id, chain, is_settled=True)
    control = await reading.control()
    manifest = await reading.manifest(chain)
    entries, is_whole = await reading.entries(max(since, chain.boundary), tail_of(chain, control), limit)
    stale = [] if since else await reading.stale(chain.boundary)
    _, version_after = await site.chains.load(*place)
    return View(
        place.tp,
        site.cluster_id,
        chain,
        is_settled=version == version_after,
        control=control,
        entries=entries,
        is_whole=is_whole,
        stale=stale,
        manifest=manifest,
        compaction=compaction,
        is_claimed=claim is not None,
        unreadable=reading.unreadable,
        since=since,
    )


async def still_stands(site: Site, place: Place, found: Sequence[Defect]) -> list[Defect]:
    """Those of a task's findings that are about the log as it is now: what holds the offsets is still that object."""
    reading = _Reading(site, place.tp)
    control = await reading.control()
    held = [await _object_of(reading, control, each.offsets[1]) for each in found]
    # Read after the index: an entry counts only if its offsets are not tiered or trimmed by now.
    chain = (await site.chains.load(*place)).chain
    if chain.deleted:
        return []
    manifest = await reading.manifest(chain)
    segments = {segment.key for segment in manifest.segments} if manifest is not None else set()
    standing = []
    for each, key in zip(found, held, strict=True):
        last = each.offsets[1]
        is_run = key == each.key and last >= chain.boundary
        is_there = each.kind in OF_CONTENT or is_run or each.key in segments
        if is_there and last >= chain.start:
            standing.append(each)
    return standing


async def _object_of(reading: _Reading, control: Control | None, offset: Offset) -> str | None:
    """The object whose run holds the offset, by the index or by what is pending."""
    entry = await reading.entry(offset)
    if entry is None and control is not None and control.pending is not None:
        entry = next((each for each in control.pending.entries if each.end_offset >= offset), None)
    return object_key(entry.data_key) if entry is not None else None
