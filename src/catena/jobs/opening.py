"""What every job needs first: the stores of a cluster, which partitions it is for, and who does its tasks.

A job works on the stores directly, beside the nodes and without them. It begins only where the meta store is not older
than the bucket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, TypeAlias

from catena.config import Settings
from catena.errors import UnknownPartition, UnknownTopic
from catena.objects.counted import CountedObjects
from catena.pipeline.last_runs import LastRuns
from catena.pipeline.site import Place, Site
from catena.pipeline.spark.work import open_spark_work
from catena.pipeline.work import Work
from catena.runtime import Clock, Entropy
from catena.store_spec import StoreSpec
from catena.stores import open_stores
from catena.tables.tasks import run_task
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
    return lambda: open_spark_work(StoreSpec.of(settings), master, remote, run=run_task)


@asynccontextmanager
async def open_site(settings: Settings, clock: Clock, entropy: Entropy) -> AsyncIterator[tuple[Site, CountedObjects]]:
    async with open_stores(settings, clock, entropy) as stores:
        cluster = await join_cluster(stores.meta, stores.objects, clock, entropy)
        await check_incarnation(stores.meta, stores.objects)
        chains = ChainStore(stores.meta, clock, entropy)
        vacuum = settings.pipeline.vacuum
        yield Site(cluster.cluster_id, stores.meta, stores.objects, chains, clock, entropy, vacuum), stores.requests


async def note_run(site: Site, job: str, which: Which, duration_ms: int, is_good: bool) -> None:
    """By hand: a run of all partitions in which nothing failed is noted, as the service does it. Not of an audit, which
    changes nothing."""
    if is_good and which == EVERYTHING:
        await LastRuns(site.meta, site.clock).note(job, duration_ms / 1000, 0)


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
