"""Compaction by key: of what is tiered, the last record of each key stays, at its offset. Others are removed.

For a partition it is a job like tiering, with the same steps, record, fence and commit (see `tier`, and `compactions`
for what becomes of one that was left behind); the boundary stays where it is, and there is a new manifest:

    1. plan from chain, manifest and the topic's configs      nothing is changed
    2. claim the partition, name the job in the chain         no other job can finish from here on
    3. write the compaction record                            shows what is under way
    4. tasks, in three stages (`tasks.compacting`)            crash: objects of the job, which vacuum collects
    5. write the manifest, record -> UPDATING_CURSOR          crash: anyone finishes it, from the record
    6. compare-and-set the manifest in the chain              THE step: before it nothing has changed, after it all has
    7. record -> DELETING_OLD, then delete it; scratch too    crash: anyone goes on

Whoever reads meanwhile sees the segments of before or those of after; both have the last record of each key. While a
job compacts a partition no other one tiers it: that is not lost, it comes later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from catena.errors import StaleView
from catena.formats import manifest as manifests
from catena.formats.manifest import Manifest
from catena.formats.segment import SegmentInfo
from catena.meta import keys
from catena.pipeline import compactions
from catena.pipeline.compact_plan import Choice, choose, cleanings_after
from catena.pipeline.compactions import Open
from catena.pipeline.records import WRITING, CompactionRecord
from catena.pipeline.replaced import replaced_by
from catena.pipeline.settings import CompactSettings
from catena.pipeline.site import Place, Site
from catena.pipeline.tier import load_manifest
from catena.types import ABSENT
from catena.virtual_log.chain import Chain
from catena.virtual_log.topic_configs import TopicSettings


class CompactPlace(NamedTuple):
    """A partition of a topic that is to be compacted."""

    place: Place
    topic: TopicSettings


class CompactPlan(NamedTuple):
    place: Place
    chain: Chain
    manifest: Manifest
    choice: Choice


class CompactJob(NamedTuple):
    """A plan that has been begun."""

    plan: CompactPlan
    job: str
    opened: Open


async def make_plan(site: Site, where: CompactPlace, settings: CompactSettings) -> CompactPlan | None:
    """None: there is nothing to do."""
    chain = (await site.chains.load(*where.place)).chain
    if chain.deleted or not where.topic.compact:
        return None
    manifest = await load_manifest(site, where.place.tp, chain)
    if manifest is None:
        return None
    choice = choose(manifest, chain.start, site.clock.now_ms(), where.topic, settings)
    return None if choice is None else CompactPlan(where.place, chain, manifest, choice)


async def begin(site: Site, plan: CompactPlan) -> CompactJob:
    """Raises StaleView if the plan does not fit any more."""
    tp, kind = plan.place
    job = site.entropy.hex_id()
    begun = (await site.chains.change(tp, kind, lambda chain: compactions.begun(chain, plan.chain, job))).chain
    if begun.tiering != job:  # ours took place, and another's did before we got to know
        raise StaleView("another job has taken the place of this one")
    record = CompactionRecord(
        compaction_id=job,
        state=WRITING,
        start_offset=plan.choice.base,
        end_offset=plan.choice.end - 1,
        msg_count=plan.choice.records,
        data_key=keys.manifest(tp, job),
        created_at_ms=site.clock.now_ms(),
        base=plan.choice.base,
        boundary=plan.manifest.end,
    )
    return CompactJob(plan, job, await compactions.write(site, tp, record, ABSENT))


async def finish(site: Site, job: CompactJob, written: Sequence[SegmentInfo | None]) -> Chain:
    """`written`: what each group has become, None if nothing was removed from it. Raises StaleView if it was all for
    nothing."""
    return await compactions.publish(site, job.plan.place, job.opened, new_manifest(site, job.plan, written))


def new_manifest(site: Site, plan: CompactPlan, written: Sequence[SegmentInfo | None]) -> Manifest:
    tp, choice = plan.place.tp, plan.choice
    segments: list[SegmentInfo] = []
    for group, info in zip(choice.groups, written, strict=True):
        segments += group if info is None else (info,)
    segments += choice.rest
    # By now, not by when it was planned: readers may begin to miss what was removed only from here on.
    now_ms = site.clock.now_ms()
    cleanings = cleanings_after(plan.manifest.cleaned, choice.base, choice.end, now_ms)
    return Manifest(
        version=manifests.version_of(cleanings),
        cluster_id=site.cluster_id,
        topic=tp.topic,
        topic_id=tp.topic_id,
        partition=tp.partition,
        base=choice.base,
        end=plan.manifest.end,
        segments=tuple(segments),
        cleanings=cleanings,
        replaced=replaced_by(plan.chain, plan.manifest, segments, now_ms, site.vacuum),
    )
