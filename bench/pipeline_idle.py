"""What a pass of the service costs when there is nothing to tier: over 10,000 partitions on the embedded default.

Once they hold records that are too young, once all of them is tiered. A round trip is one call of the meta store; an
object request is what S3 would bill, and what it would cost there, with a pass each minute, is told for a day. No tasks
are run, and so Spark is not asked. BENCH_PARTITIONS says how many (10,000).
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

from bench.figures import Figure, cpu_seconds
from bench.kafka_clients import setting
from bench.pipeline_stand import TOPIC, settings_of
from bench.round_trips import CountedMeta
from bench.stand import entry_of, open_node
from catena.config import Settings
from catena.jobs import EVERYTHING, find_places
from catena.meta.base import MetaStore
from catena.meta.memory import MemoryMeta
from catena.metrics.cost import requests_cost_usd
from catena.objects.counted import CountedObjects
from catena.pipeline.passes import Passes
from catena.pipeline.settings import PipelineSettings
from catena.pipeline.site import Site
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import InlineWork, used
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import open_stores
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.cluster import join_cluster

PASSES = 3
PASSES_A_DAY = 24 * 60


class Pass(NamedTuple):
    seconds: float
    cpu_s: float
    round_trips: int
    requests: dict[str, int]


class Stand(NamedTuple):
    site: Site
    meta: CountedMeta
    requests: CountedObjects
    work: InlineWork


def run(folder: Path) -> list[Figure]:
    return asyncio.run(measure(folder, int(setting("BENCH_PARTITIONS", 10_000))))


async def measure(folder: Path, partitions: int) -> list[Figure]:
    settings = settings_of(folder)
    async with open_node(settings) as node:
        await node.topics.create(TOPIC, partitions)
        logs = [await node.log(TOPIC, number) for number in range(partitions)]
        entry = entry_of([b"x" * 100])
        await asyncio.gather(*(log.append(entry) for log in logs))
    async with open_stand(settings) as stand:
        service = passes_of(stand, PipelineSettings())
        young = [await one_pass(stand, service) for _ in range(PASSES)]
        reports = await passes_of(stand, settings.pipeline).pass_once()
        assert [each.outcome for each in reports] == ["tiered"] * partitions
        await service.pass_once()  # the first that reads the manifests, and the last
        tiered = [await one_pass(stand, service) for _ in range(PASSES)]
    return [*figures("too young", young, partitions), *figures("tiered", tiered, partitions)]


@asynccontextmanager
async def open_stand(settings: Settings) -> AsyncIterator[Stand]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_stores(settings, clock, entropy) as (meta, objects, requests, _):
        cluster = await join_cluster(meta, objects, clock, entropy)
        counted = CountedMeta(cast(MemoryMeta, meta))
        store = cast(MetaStore, counted)
        site = Site(cluster.cluster_id, store, objects, ChainStore(store, clock, entropy), clock, entropy)
        yield Stand(site, counted, requests, InlineWork(TaskContext(objects, clock, entropy, requests)))


def passes_of(stand: Stand, settings: PipelineSettings) -> Passes:
    """As the service does them, over all that there is."""
    return Passes(stand.site, stand.work, settings.tier, lambda: find_places(stand.site, EVERYTHING))


async def one_pass(stand: Stand, service: Passes) -> Pass:
    stand.meta.counts.clear()
    before = stand.requests.snapshot()
    cpu, started = cpu_seconds(), time.perf_counter()
    reports = await service.pass_once()
    seconds, cpu_s = time.perf_counter() - started, cpu_seconds() - cpu
    assert {each.outcome for each in reports} == {"idle"}
    asked = used(before, stand.requests.snapshot()).requests
    return Pass(seconds, cpu_s, sum(stand.meta.counts.values()), asked)


def figures(name: str, passes: Sequence[Pass], partitions: int) -> list[Figure]:
    last = passes[-1]
    cost = requests_cost_usd(last.requests) * PASSES_A_DAY
    where = f"{partitions:,} partitions, {name}"
    return [
        Figure(f"{where}: a pass", statistics.median(each.seconds for each in passes), "s"),
        Figure(f"{where}: CPU", statistics.median(each.cpu_s for each in passes), "s"),
        Figure(f"{where}: meta round trips", last.round_trips),
        Figure(f"{where}: object requests", sum(last.requests.values())),
        Figure(f"{where}: cost of object requests a day", cost, "USD"),
    ]
