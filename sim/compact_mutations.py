"""Deliberate bugs of compaction, each of which the compaction scenario must catch. See `mutations`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import numpy as np

from catena.columns import last_of_keys, thinning
from catena.columns.gather import Body
from catena.columns.key_hashes import Words
from catena.columns.varints import Ints
from catena.columns.walked_batches import Stored, Walked, Whole, walked
from catena.errors import Corrupt
from catena.formats.manifest import Cleaning, Manifest
from catena.formats.record_batch import parse_header
from catena.formats.segment import SegmentInfo
from catena.formats.thinned import gaps
from catena.pipeline import compact, compact_plan, compact_work
from catena.pipeline.compact import CompactPlan
from catena.pipeline.compact_plan import Choice
from catena.pipeline.site import Site
from catena.pipeline.tasks.compact_plans import RewritePlan
from catena.types import Offset, TopicPartition
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain
from sim.chaos import Tally
from sim.compact_run import run_seed
from sim.compact_scenario import draw
from sim.mutating import Mutation, listing, replaced
from sim.trial import Result

COMPACT_MUTATIONS: list[Mutation] = []
compact_mutation = listing(COMPACT_MUTATIONS, run_seed)


def _run_if_nonsense(seed: int) -> Result:
    """Few seeds can show it at all; the others are not looked at, to save time."""
    return run_seed(seed) if draw(seed).nonsense else Result(seed, [], "", 0, Tally())


compact_mutation_of_nonsense = listing(COMPACT_MUTATIONS, _run_if_nonsense)


@compact_mutation
def first_record_of_a_key_stays() -> Iterator[None]:
    real = last_of_keys.last_rows

    def first(high: Words, low: Words) -> Ints:
        return np.sort(len(high) - 1 - real(high[::-1].copy(), low[::-1].copy()))

    with replaced(last_of_keys, "last_rows", first):
        yield


@compact_mutation
def marks_of_deleted_keys_go_at_once() -> Iterator[None]:
    with replaced(compact_plan, "tombstones_below", lambda *_: 1 << 62):
        yield


@compact_mutation
def marks_of_deleted_keys_never_go() -> Iterator[None]:
    with replaced(compact_plan, "tombstones_below", lambda *_: 0):
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

    def fewer(self: compact_work._Run, cluster_id: str) -> Iterator[RewritePlan]:
        for plan in real(self, cluster_id):
            yield msgspec.structs.replace(plan, survivors=plan.survivors[1:])

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


def _not_opaque(then: Callable[[Stored], Walked | Whole]) -> AbstractContextManager[None]:
    """Whoever thins out a log meets something else in place of batches that can't be decoded."""

    def looked_into(body: Body, partition: TopicPartition) -> Iterator[Walked | Whole]:
        for part in walked(body, partition):
            yield then(part.batch) if isinstance(part, Whole) and part.is_opaque else part

    return replaced(thinning, "walked", looked_into)


@compact_mutation_of_nonsense
def batch_that_can_not_be_decoded_stops_all() -> Iterator[None]:
    def stop(batch: Stored) -> Walked | Whole:
        raise Corrupt(f"the batch at offset {batch.offset} is unsound")

    with _not_opaque(stop):
        yield


@compact_mutation_of_nonsense
def batch_that_can_not_be_decoded_is_removed() -> Iterator[None]:
    def gap(batch: Stored) -> Walked | Whole:
        (made,) = gaps(batch.header.count)
        return Whole(Stored(batch.offset, parse_header(made), memoryview(made)), is_opaque=True)

    with _not_opaque(gap):
        yield
