"""Tiering: runs of the WAL become large segments, small segments become larger ones, and dropped ones are let go.

For a partition, one job at a time:

    1. plan from chain, manifest and index                    nothing is changed
    2. claim the partition, name the job in the chain         no other job can finish from here on
    3. write the compaction record                            shows what is under way
    4. tasks write segments                                   crash: objects that vacuum collects
    5. write the manifest, record -> UPDATING_CURSOR          crash: anyone finishes it, from the record
    6. compare-and-set {boundary, manifest} in the chain      THE step: before it nothing has changed, after it all has
    7. record -> DELETING_OLD, delete the index below         crash: anyone goes on; nobody looks there meanwhile
    8. delete the record, give the claim back

A job that sleeps at any step and wakes when others have taken its place finds another name in the chain at step 6, and
has changed nothing. The claim saves work and no more: of two jobs at once, the one that was named last wins.

The driver reads no data: manifests and records only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET

from catena.errors import Corrupt, StaleView
from catena.formats import manifest as manifests
from catena.formats.manifest import Manifest
from catena.formats.segment import SegmentInfo
from catena.loglets.base import LinkSpec
from catena.loglets.diskless.materialize import materialize
from catena.loglets.diskless.records import IndexEntry, decode_control
from catena.loglets.producers import ProducerState
from catena.meta import keys
from catena.pipeline import compactions
from catena.pipeline.compactions import Open
from catena.pipeline.lag import Backlog, backlog_of
from catena.pipeline.plan import Merge, choose_merges, choose_runs, kept_segments
from catena.pipeline.records import WRITING, CompactionRecord
from catena.pipeline.replaced import late_blobs, replaced_by
from catena.pipeline.settings import TierSettings
from catena.pipeline.settled import Settled
from catena.pipeline.site import Place, Site
from catena.pipeline.tasks.segments import SegmentPlan
from catena.types import ABSENT, Offset, TopicPartition
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain

DISKLESS = "diskless"


class TierPlan(NamedTuple):
    """What is to become of a partition's tiered link."""

    place: Place
    chain: Chain
    segments: tuple[SegmentInfo, ...]
    """Of the manifest, without those that are dropped."""
    dropped: int
    merges: list[Merge]
    runs: list[list[IndexEntry]]
    left: Backlog = Backlog()
    """What is old enough, and not part of the plan."""
    manifest: Manifest | None = None
    """That the chain names; None: nothing is tiered yet."""

    @property
    def base(self) -> Offset:
        if self.segments:
            return self.segments[0].base
        return self.runs[0][0].start_offset if self.runs else self.boundary

    @property
    def boundary(self) -> Offset:
        if self.runs:
            return self.runs[-1][-1].end_offset + 1
        return self.segments[-1].end if self.segments else self.chain.boundary


class TierJob(NamedTuple):
    """A plan that has been begun."""

    plan: TierPlan
    job: str
    opened: Open
    segments: tuple[SegmentPlan, ...]


class Look(NamedTuple):
    """What a look at a partition shows."""

    plan: TierPlan | None
    """None: there is nothing to do."""
    waiting: Backlog
    """What is old enough, be it part of the plan or not."""


async def look(
    site: Site,
    place: Place,
    settings: TierSettings,
    force_up_to: Offset | None = None,
    settled: Settled | None = None,
) -> Look:
    chain = (await site.chains.load(place.tp, place.kind)).chain
    if chain.deleted:
        return Look(None, Backlog())
    manifest: Manifest | None = None
    is_settled = settled is not None and settled.has(place.tp, chain)
    if not is_settled:
        manifest = await load_manifest(site, place.tp, chain)
    entries = await _entries(site, place.tp, chain, settings, force_up_to)
    first = chain.boundary
    if chain.tiered is None and entries:
        first = min(first, entries[0].start_offset)  # where a trim has cut a run, it is still stored whole
    runs = choose_runs(entries, first, site.clock.now_ms(), settings, force_up_to)
    if is_settled and runs:
        manifest = await load_manifest(site, place.tp, chain)
    segments = manifest.segments if manifest is not None else ()
    kept = kept_segments(segments, chain.start)
    merges = choose_merges(kept, settings, manifest.cleaned_up_to if manifest is not None else 0)
    dropped = len(segments) - len(kept)
    waiting = backlog_of(entries)
    if not runs and not merges and not dropped:
        if settled is not None:
            settled.note(place.tp, chain)
        return Look(None, waiting)
    left = backlog_of(entries[sum(map(len, runs)) :])
    return Look(TierPlan(place, chain, kept, dropped, merges, runs, left, manifest), waiting)


async def make_plan(
    site: Site, place: Place, settings: TierSettings, force_up_to: Offset | None = None
) -> TierPlan | None:
    """None: there is nothing to do."""
    return (await look(site, place, settings, force_up_to)).plan


async def begin(site: Site, plan: TierPlan) -> TierJob:
    """Raises StaleView if the plan does not fit any more."""
    tp, kind = plan.place
    job = site.entropy.hex_id()
    begun = (await site.chains.change(tp, kind, lambda chain: _begin(chain, plan, job))).chain
    if begun.tiering != job:  # ours took place, and another's did before we got to know
        raise StaleView("another job has taken the place of this one")
    segments = tuple(_segment_plans(site, plan, job))
    record = CompactionRecord(
        compaction_id=job,
        state=WRITING,
        start_offset=min((each.base for each in segments), default=plan.base),
        end_offset=max((each.end for each in segments), default=plan.base) - 1,
        msg_count=sum(each.end - each.base for each in segments),
        data_key=keys.manifest(tp, job),
        created_at_ms=site.clock.now_ms(),
        base=plan.base,
        boundary=plan.boundary,
    )
    return TierJob(plan, job, await compactions.write(site, tp, record, ABSENT), segments)


async def finish(site: Site, job: TierJob, written: Sequence[SegmentInfo]) -> Chain:
    """`written`: what the job's segment plans have become, in order. Raises StaleView if it was all for nothing."""
    return await compactions.publish(site, job.plan.place, job.opened, _new_manifest(site, job, written))


async def load_manifest(site: Site, tp: TopicPartition, chain: Chain) -> Manifest | None:
    if chain.tiered is None:
        return None
    key = chain.tiered.params["manifest"]
    manifest = manifests.decode((await site.objects.get(key)).data, key)
    if (manifest.topic_id, manifest.partition, manifest.end) != (tp.topic_id, tp.partition, chain.tiered.end):
        raise Corrupt(f"object {key} is the manifest of {manifest.topic}/{manifest.partition} up to {manifest.end}")
    return manifest


async def materialize_pending(site: Site, place: Place) -> None:
    """Without `transact` the last append is in the control record only, until somebody appends again."""
    record = await site.meta.get(keys.control(place.tp))
    if record is None:
        return
    control = decode_control(record.key, record.value)
    if control.pending is None:
        return

    async def boundary() -> Offset:
        return (await site.chains.load(*place)).chain.boundary

    async def handoff() -> Mapping[int, ProducerState]:
        raise AssertionError("what is written down here needs no handoff")

    link = LinkSpec(place.tp, control.epoch, 0, {}, handoff, boundary)
    await materialize(site.meta, link, control.epoch, control.pending)


async def _entries(
    site: Site, tp: TopicPartition, chain: Chain, settings: TierSettings, force_up_to: Offset | None
) -> list[IndexEntry]:
    """Of the index, from the boundary on, as far as they may be tiered at all."""
    end = _diskless_end(chain)
    entries: list[IndexEntry] = []
    if end is not None and end <= chain.boundary:
        return entries
    youngest_ms = site.clock.now_ms() - settings.min_age_ms
    async for entry in site.index_entries(tp, chain.boundary):
        is_forced = force_up_to is not None and entry.start_offset < force_up_to
        if (end is not None and entry.start_offset >= end) or len(entries) == settings.max_runs:
            break
        if not is_forced and entry.created_at_ms > youngest_ms:
            break
        entries.append(entry)
    return entries


def _diskless_end(chain: Chain) -> Offset | None:
    """Up to where the links that follow the tiered one are diskless; None: all are."""
    for link in chain.links:
        if link.kind not in (chains.TIERED, DISKLESS):
            return link.base
    return None


def _begin(chain: Chain, plan: TierPlan, job: str) -> Chain:
    return compactions.begun(chain, plan.chain, job)


def _segment_plans(site: Site, plan: TierPlan, job: str) -> list[SegmentPlan]:
    tp = plan.place.tp
    named = (site.cluster_id, tp.topic, tp.topic_id, tp.partition, job)
    plans = []
    for merge in plan.merges:
        sources = plan.segments[merge.start : merge.end]
        plans.append(SegmentPlan(*named, sources[0].base, sources[-1].end, segments=sources))
    for runs in plan.runs:
        plans.append(SegmentPlan(*named, runs[0].start_offset, runs[-1].end_offset + 1, runs=tuple(runs)))
    return plans


def _new_manifest(site: Site, job: TierJob, written: Sequence[SegmentInfo]) -> Manifest:
    plan, tp = job.plan, job.plan.place.tp
    merged = {merge.start: info for merge, info in zip(plan.merges, written, strict=False)}
    gone = {number for merge in plan.merges for number in range(merge.start, merge.end)}
    kept = [
        merged.get(number, segment)
        for number, segment in enumerate(plan.segments)
        if number in merged or number not in gone
    ]
    segments = (*kept, *written[len(plan.merges) :])
    cleanings = plan.manifest.cleanings if plan.manifest is not None else UNSET
    now_ms = site.clock.now_ms()
    return Manifest(
        version=manifests.version_of(cleanings),
        cluster_id=site.cluster_id,
        topic=tp.topic,
        topic_id=tp.topic_id,
        partition=tp.partition,
        base=plan.base,
        end=plan.boundary,
        segments=segments,
        cleanings=cleanings,
        replaced=replaced_by(plan.chain, plan.manifest, segments, now_ms, site.vacuum),
        blobs=late_blobs((entry for runs in plan.runs for entry in runs), now_ms, site.vacuum),
    )
