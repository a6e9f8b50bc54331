"""Deliberate bugs of the pipeline's jobs, each of which the pipeline scenario must catch. See `mutations`.

Segments that do not meet are refused where a manifest is encoded, and a boundary outside of the chain where it is
changed; the bugs that would make them take these checks away, too, so that what is found is what lies behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from catena.formats import manifest as manifests
from catena.formats.manifest import Manifest
from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.blobs import object_key
from catena.loglets.diskless.records import IndexEntry
from catena.meta import keys
from catena.pipeline import compactions, tier
from catena.pipeline import vacuum as vacuum_module
from catena.pipeline.compactions import Open, Recovery
from catena.pipeline.plan import Merge, choose_merges, choose_runs
from catena.pipeline.records import DELETING, UPDATING
from catena.pipeline.references import References
from catena.pipeline.site import Place, Site
from catena.pipeline.tier import TierJob, TierPlan
from catena.types import Offset, TopicPartition
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import TIERED, Chain, Link
from catena.virtual_log.log import VirtualLog
from sim.chaos import Tally
from sim.mutating import Mutation, listing, nothing, replaced
from sim.pipeline_run import run_seed
from sim.pipeline_scenario import PipelineScenario, draw
from sim.trial import Result

PIPELINE_MUTATIONS: list[Mutation] = []
pipeline_mutation = listing(PIPELINE_MUTATIONS, run_seed)


def _where(can_show: Callable[[PipelineScenario], bool]) -> Callable[[int], Result]:
    """A bug that few seeds can show at all is not looked for in the others, to save time."""

    def run(seed: int) -> Result:
        return run_seed(seed) if can_show(draw(seed)) else Result(seed, [], "", 0, Tally())

    return run


def _shows_pending(scenario: PipelineScenario) -> bool:
    return bool(scenario.vacuums) and scenario.bursts > 1 and scenario.transact < 1


def _shows_sleepers(scenario: PipelineScenario) -> bool:
    sleeps = scenario.sleeps and scenario.processes.pauses
    return bool(scenario.vacuums and scenario.drivers and sleeps) and scenario.bursts > 1


mutation_of_what_is_pending = listing(PIPELINE_MUTATIONS, _where(_shows_pending))
mutation_of_what_sleeps = listing(PIPELINE_MUTATIONS, _where(_shows_sleepers))
mutation_of_what_is_replaced = listing(
    PIPELINE_MUTATIONS, _where(lambda scenario: bool(scenario.vacuums and scenario.drivers) and scenario.bursts > 1)
)


def _unchecked_manifests() -> AbstractContextManager[None]:
    return replaced(manifests, "_defect", lambda _: None)


# The commit


@pipeline_mutation
def job_commits_that_the_chain_does_not_name() -> Iterator[None]:
    real = chains.finish_tiering

    def unfenced(chain: Chain, job: str, base: Offset, boundary: Offset, params: dict[str, Any]) -> Chain:
        return real(msgspec.structs.replace(chain, tiering=job), job, base, boundary, params)

    with replaced(chains, "finish_tiering", unfenced):
        yield


@pipeline_mutation
def boundary_goes_back_to_where_a_job_has_planned_it() -> Iterator[None]:
    """The fence is gone, and so is the look at where the boundary is."""

    def blind(chain: Chain, _job: str, base: Offset, boundary: Offset, params: dict[str, Any]) -> Chain:
        rest = chain.links[1:] if chain.tiered is not None else chain.links
        kept = [link for link in rest if link.end is None or link.end > boundary] or [rest[-1]]
        kept[0] = msgspec.structs.replace(kept[0], base=boundary)
        tiered = Link(TIERED, chain.next_epoch, base, boundary, params)
        eras, following = tuple(era for era in chain.written if era[0] < boundary), chain.next_epoch + 1
        return msgspec.structs.replace(chain, links=(tiered, *kept), eras=eras, tiering=None, next_epoch=following)

    with replaced(chains, "finish_tiering", blind):
        yield


@pipeline_mutation
def leader_epochs_of_what_is_tiered_are_forgotten() -> Iterator[None]:
    real = chains.finish_tiering

    def forgetful(chain: Chain, *args: Any) -> Chain:
        return msgspec.structs.replace(real(chain, *args), eras=())

    with replaced(chains, "finish_tiering", forgetful):
        yield


@pipeline_mutation
def manifest_is_written_after_the_chain_names_it() -> Iterator[None]:
    async def late(site: Site, job: TierJob, written: Sequence[SegmentInfo]) -> Chain:
        manifest = tier._new_manifest(site, job, written)
        opened = await compactions.move(site, job.plan.place.tp, job.opened, UPDATING)
        chain = await compactions.commit(site, job.plan.place, opened, manifest)
        await site.objects.put(opened.record.data_key, [manifests.encode(manifest)])
        return chain

    with replaced(tier, "finish", late):
        yield


@pipeline_mutation
def index_is_deleted_before_the_chain_is_changed() -> Iterator[None]:
    real = compactions.commit

    async def hasty(site: Site, place: Place, opened: Open, manifest: Manifest) -> Chain:
        end = keys.index(place.tp, opened.record.boundary)
        await site.meta.delete_range(keys.index_prefix(place.tp), end)
        return await real(site, place, opened, manifest)

    with replaced(compactions, "commit", hasty):
        yield


@pipeline_mutation
def index_entry_at_the_boundary_is_deleted_too() -> Iterator[None]:
    real = compactions.clean

    async def greedy(site: Site, tp: TopicPartition, opened: Open, boundary: Offset) -> None:
        await real(site, tp, opened, boundary + 2)

    with replaced(compactions, "clean", greedy):
        yield


@pipeline_mutation
def recovery_trusts_the_record_and_not_the_chain() -> Iterator[None]:
    real = compactions.recover

    async def trusting(site: Site, place: Place) -> Recovery:
        opened = await compactions.load(site, place.tp)
        if opened is None or opened.record.state not in (UPDATING, DELETING):
            return await real(site, place)
        await compactions.clean(site, place.tp, opened, opened.record.boundary)
        return "finished"

    with replaced(compactions, "recover", trusting):
        yield


@pipeline_mutation
def job_begins_whatever_was_changed_since_it_was_planned() -> Iterator[None]:
    """It takes its time, too, as anyone may."""
    real = tier.begin

    async def slow(site: Site, plan: TierPlan) -> TierJob:
        await site.clock.sleep(40.0 * site.entropy.jitter())
        return await real(site, plan)

    def anyway(chain: Chain, _plan: TierPlan, job: str) -> Chain:
        return chains.begin_tiering(chain, job)

    with replaced(tier, "_begin", anyway), replaced(tier, "begin", slow):
        yield


# The plan


@pipeline_mutation
def plan_leaves_out_a_run() -> Iterator[None]:
    real = choose_runs

    def with_a_gap(*args: Any, **kwargs: Any) -> list[list[IndexEntry]]:
        segments = real(*args, **kwargs)
        return [segments[0], *segments[2:]] if len(segments) > 2 else segments

    with _unchecked_manifests(), replaced(tier, "choose_runs", with_a_gap):
        yield


@pipeline_mutation
def merge_drops_a_neighbour() -> Iterator[None]:
    real = choose_merges
    real_manifest = tier._new_manifest

    def shorter(*args: Any) -> list[Merge]:
        return [merge._replace(end=merge.end - 1) if merge.end - merge.start > 1 else merge for merge in real(*args)]

    def without(site: Site, job: TierJob, written: Sequence[SegmentInfo]) -> Manifest:
        plan = job.plan
        merges = [merge._replace(end=merge.end + 1) for merge in plan.merges]
        return real_manifest(site, job._replace(plan=plan._replace(merges=merges)), written)

    with (
        _unchecked_manifests(),
        replaced(tier, "choose_merges", shorter),
        replaced(tier, "_new_manifest", without),
    ):
        yield


@pipeline_mutation
def boundary_moves_beyond_the_last_segment() -> Iterator[None]:
    real = tier._new_manifest

    def shorter(*args: Any) -> Manifest:
        manifest = real(*args)
        return msgspec.structs.replace(manifest, segments=manifest.segments[:-1] or manifest.segments)

    with _unchecked_manifests(), replaced(tier, "_new_manifest", shorter):
        yield


# Others beside the jobs


@pipeline_mutation
def readers_ignore_the_boundary() -> Iterator[None]:
    def untiered(self: Chain, offset: Offset) -> Link | None:
        found = [link for link in self.links if link.kind != TIERED and (link.end is None or offset < link.end)]
        return found[0] if found else None

    with replaced(Chain, "link_at", untiered):
        yield


@pipeline_mutation
def pending_is_written_to_the_index_below_the_boundary() -> Iterator[None]:
    async def none(_: VirtualLog) -> Offset:
        return 0

    with replaced(VirtualLog, "_boundary", none):
        yield


# Vacuum


@mutation_of_what_sleeps
def objects_of_a_job_that_may_still_commit_are_collected() -> Iterator[None]:
    with replaced(References, "_add_job", nothing):
        yield


@mutation_of_what_is_replaced
def segments_are_collected_as_soon_as_others_take_their_place() -> Iterator[None]:
    with replaced(References, "_read_replaced", nothing):
        yield


@mutation_of_what_is_replaced
def blobs_are_collected_as_soon_as_they_are_tiered() -> Iterator[None]:
    """When they are so old that the grace does not keep them."""
    with replaced(References, "_add_blobs", lambda *_: None):
        yield


@pipeline_mutation
def vacuum_does_not_wait_for_what_is_under_way() -> Iterator[None]:
    real = vacuum_module._listing_plans

    def everything(settings: Any, _cutoff_ms: int) -> list[bytes]:
        return real(settings, 1 << 62)

    with replaced(vacuum_module, "_listing_plans", everything):
        yield


@mutation_of_what_is_pending
def vacuum_reads_the_index_before_what_is_pending() -> Iterator[None]:
    """What is written to the index and replaced between the two is in neither."""

    async def index_first(self: References, place: Place) -> None:
        await self._read_index(place.tp)
        pending = await self._read_pending(place.tp)
        boundary = await self._read_chain(place)
        self._found.update(object_key(entry.data_key) for entry in pending if entry.end_offset >= boundary)

    with replaced(References, "_read_partition", index_first):
        yield


@mutation_of_what_is_pending
def vacuum_does_not_count_what_is_pending() -> Iterator[None]:
    async def none(_self: References, _tp: TopicPartition) -> Sequence[IndexEntry]:
        return ()

    with replaced(References, "_read_pending", none):
        yield


@pipeline_mutation
def deleted_topics_are_never_forgotten() -> Iterator[None]:
    with replaced(vacuum_module, "forget_topic", nothing):
        yield
