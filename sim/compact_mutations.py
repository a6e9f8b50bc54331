"""Deliberate bugs of compaction, each of which the compaction scenario must catch. See `mutations`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from catena.columns import thinning
from catena.columns.last_of_keys import LastOfKeys, merged
from catena.formats.manifest import Cleaning, Manifest
from catena.formats.segment import SegmentInfo
from catena.pipeline import compact, compact_plan, compact_work
from catena.pipeline.compact import CompactPlan
from catena.pipeline.compact_plan import Choice
from catena.pipeline.site import Site
from catena.pipeline.tasks import compacting
from catena.pipeline.tasks.compact_plans import RewritePlan
from catena.types import Offset
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain
from sim.compact_run import run_seed
from sim.mutating import Mutation, listing, replaced

COMPACT_MUTATIONS: list[Mutation] = []
compact_mutation = listing(COMPACT_MUTATIONS, run_seed)


@compact_mutation
def first_record_of_a_key_stays() -> Iterator[None]:
    def first(parts: Iterable[LastOfKeys]) -> LastOfKeys:
        turned = [part._replace(offset=-part.offset) for part in parts]
        found = merged(turned)
        return found._replace(offset=-found.offset)

    with replaced(compacting, "merged", first):
        yield


@compact_mutation
def marks_of_deleted_keys_go_at_once() -> Iterator[None]:
    with replaced(compact_plan, "tombstones_below", lambda *_: 1 << 62):
        yield


@compact_mutation
def mark_goes_and_what_it_deletes_stays() -> Iterator[None]:
    """The first group is not rewritten."""
    real = compact.new_manifest

    def half(site: Site, plan: CompactPlan, written: Sequence[SegmentInfo | None]) -> Manifest:
        return real(site, plan, [None, *written[1:]])

    with replaced(compact, "new_manifest", half), replaced(compact_plan, "tombstones_below", lambda *_: 1 << 62):
        yield


@compact_mutation
def bucket_is_forgotten() -> Iterator[None]:
    real = compact_work._Run.rewrite_plans

    def fewer(self: compact_work._Run, cluster_id: str) -> list[RewritePlan]:
        return [msgspec.structs.replace(plan, survivors=plan.survivors[1:]) for plan in real(self, cluster_id)]

    with replaced(compact_work._Run, "rewrite_plans", fewer):
        yield


@compact_mutation
def records_below_what_is_clean_are_not_looked_at() -> Iterator[None]:
    real = compact_plan.choose

    def dirty_only(manifest: Manifest, *args: Any) -> Choice | None:
        found = real(manifest, *args)
        if found is None:
            return None
        groups = tuple(group for group in found.groups if group[-1].end > manifest.cleaned_up_to)
        return found._replace(groups=groups)

    def keeping(site: Site, plan: CompactPlan, written: Sequence[SegmentInfo | None]) -> Manifest:
        made = real_manifest(site, plan, written)
        clean = tuple(info for info in plan.manifest.segments if info.end <= plan.choice.base)
        return msgspec.structs.replace(made, base=(clean or made.segments)[0].base, segments=(*clean, *made.segments))

    real_manifest = compact.new_manifest
    real_begin = compact.begin

    async def begin(site: Site, plan: CompactPlan) -> compact.CompactJob:
        job = await real_begin(site, plan)
        base = plan.manifest.base
        opened = job.opened._replace(record=msgspec.structs.replace(job.opened.record, base=base))
        return job._replace(opened=opened)

    with (
        replaced(compact, "choose", dirty_only),
        replaced(compact, "new_manifest", keeping),
        replaced(compact, "begin", begin),
    ):
        yield


@compact_mutation
def log_is_told_to_be_clean_further_than_it_is() -> Iterator[None]:
    real = compact.new_manifest

    def further(site: Site, plan: CompactPlan, written: Sequence[SegmentInfo | None]) -> Manifest:
        made = real(site, plan, [None] * len(written))
        return msgspec.structs.replace(made, cleanings=(Cleaning(made.end, 0),))

    with replaced(compact, "new_manifest", further):
        yield


@compact_mutation
def job_commits_that_the_chain_does_not_name() -> Iterator[None]:
    """Another has tiered meanwhile; what it has added is gone."""
    real = chains.finish_tiering

    def unfenced(chain: Chain, job: str, base: Offset, boundary: Offset, params: dict[str, Any]) -> Chain:
        return real(msgspec.structs.replace(chain, tiering=job), job, base, boundary, params)

    with replaced(chains, "finish_tiering", unfenced):
        yield


@compact_mutation
def records_that_stay_are_those_beside_the_survivors() -> Iterator[None]:
    """By one offset, where there is one more."""
    real = thinning._is_in

    def beside(kept: Any, offsets: Any) -> Any:
        return np.roll(real(kept, offsets), 1)

    with replaced(thinning, "_is_in", beside):
        yield
