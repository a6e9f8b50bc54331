"""The composition root of the pipeline: settings in, a job's report out. What nodes have in `node.py`, jobs have here.

A job works on the stores directly, beside the nodes and without them. It begins only where the meta store is not older
than the bucket; Spark is started once the stores are known to be there, since it takes longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, TypeAlias

import msgspec

from catena.config import Settings
from catena.errors import UnknownPartition, UnknownTopic
from catena.node import Node
from catena.objects.counted import CountedObjects
from catena.pipeline.report import RunReport
from catena.pipeline.retention import Kept, Trimmed, trim_all
from catena.pipeline.site import Place, Site
from catena.pipeline.spark.work import open_spark_work
from catena.pipeline.tier_pass import Progress, TierPass, plan_all
from catena.pipeline.work import Executor, Usage, Work, used
from catena.runtime import Clock, Entropy, SystemClock, SystemEntropy
from catena.store_spec import StoreSpec
from catena.stores import open_stores
from catena.types import Offset
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.cluster import join_cluster
from catena.virtual_log.incarnation import check_incarnation
from catena.virtual_log.topics import list_topics

MAX_OFFSET = (1 << 63) - 1

OpenWork: TypeAlias = Callable[[], AbstractAsyncContextManager[Work]]


class Which(NamedTuple):
    """Which partitions a job is for; None: all."""

    topic: str | None = None
    partition: int | None = None


EVERYTHING = Which()


def on_spark(settings: Settings, master: str | None = None, remote: str | None = None) -> OpenWork:
    """Without `master` and `remote`: on this machine, with all its cores."""
    return lambda: open_spark_work(StoreSpec.of(settings), master, remote)


@asynccontextmanager
async def open_site(settings: Settings, clock: Clock, entropy: Entropy) -> AsyncIterator[tuple[Site, CountedObjects]]:
    async with open_stores(settings, clock, entropy) as stores:
        cluster = await join_cluster(stores.meta, stores.objects, clock, entropy)
        await check_incarnation(stores.meta, stores.objects)
        chains = ChainStore(stores.meta, clock, entropy)
        yield Site(cluster.cluster_id, stores.meta, stores.objects, chains, clock, entropy), stores.requests


async def find_places(site: Site, which: Which) -> list[Place]:
    """Partitions in the order of their topics' names. Raises UnknownTopic and UnknownPartition."""
    topics = await list_topics(site.meta)
    if which.topic is not None:
        topics = [topic for topic in topics if topic.name == which.topic]
        if not topics:
            raise UnknownTopic(which.topic)
        if which.partition is not None and not 0 <= which.partition < topics[0].partitions:
            raise UnknownPartition(which.topic, which.partition, topics[0].partitions)
    return [
        Place(topic.partition(number), topic.kind)
        for topic in topics
        for number in range(topic.partitions)
        if which.partition in (None, number)
    ]


async def tier(
    settings: Settings,
    which: Which = EVERYTHING,
    force_up_to: Offset | None = None,
    dry_run: bool = False,
    open_work: OpenWork | None = None,
    show: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunReport:
    """One pass over the partitions; see `catena.pipeline.tier`. Without work to do Spark is not even started."""
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_site(settings, clock, entropy) as (site, requests):
        started_at_ms, before = clock.now_ms(), requests.snapshot()
        places = await find_places(site, which)
        # Nobody works yet: what is planned here shows whether there is any work at all.
        planned = await plan_all(site, places, settings.pipeline.tier, force_up_to)
        reports, usage = planned, dict[Executor, Usage]()
        if not dry_run and any(each.outcome != "idle" for each in planned):
            async with (open_work or on_spark(settings))() as work:
                doing = TierPass(site, work, settings.pipeline.tier, force_up_to, show, should_stop)
                reports, usage = await doing.run(places), dict(work.usage)
        said = tuple(each for each in reports if each.outcome != "idle")
        return RunReport(
            job="tier",
            started_at_ms=started_at_ms,
            duration_ms=clock.now_ms() - started_at_ms,
            dry_run=dry_run,
            partitions=said,
            idle=len(reports) - len(said),
            executors={str(executor): each for executor, each in usage.items()},
            driver=used(before, requests.snapshot(), 0),
        )


class RetentionReport(msgspec.Struct, frozen=True):
    job: str
    started_at_ms: int
    duration_ms: int
    dry_run: bool
    partitions: tuple[Trimmed, ...]

    @property
    def failed(self) -> int:
        return sum(bool(each.error) for each in self.partitions)


async def retention(settings: Settings, which: Which = EVERYTHING, dry_run: bool = False) -> RetentionReport:
    """Trim what the topics' configs no longer ask to keep; see `catena.pipeline.retention`."""
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_site(settings, clock, entropy) as (site, _):
        started_at_ms = clock.now_ms()
        node = await Node.start(settings, site.meta, site.objects, clock, entropy)
        try:
            topics = {topic.topic_id: topic for topic in await list_topics(site.meta)}
            kept = [
                Kept(topics[place.tp.topic_id], node.open_log(topics[place.tp.topic_id], place.tp.partition))
                for place in await find_places(site, which)
            ]
            trimmed = await trim_all(kept, node.topics.get, clock, dry_run)
        finally:
            await node.close()
        return RetentionReport("retention", started_at_ms, clock.now_ms() - started_at_ms, dry_run, tuple(trimmed))


def compact_once(settings: Settings, topic: str, partition: int) -> RunReport:
    """All of one partition that can be tiered now, whatever its age, on this machine: for debugging and recovery."""
    return asyncio.run(tier(settings, Which(topic, partition), MAX_OFFSET))
