"""GET /metrics and GET /metrics/prometheus of a node: counters as they stand, and a few looks at the stores.

Components count next to what they do (`catena.counting`); here their numbers are put together when somebody asks. What
the stores have to be asked for is read when somebody asks and it has become old (`lazily`), and is bounded: so the
number of series, and what a scrape costs, do not depend on the number of partitions.

Nothing secret is told: of addresses of stores only their kind.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

from catena.broker.broker import Broker
from catena.broker.coordinator import Coordinator
from catena.broker.retention import Retention
from catena.broker.server import Server
from catena.cluster.membership import Membership
from catena.config import Settings
from catena.http.base import HttpRequest, HttpResponse, Routes, json_response
from catena.http.health import NodeState
from catena.metrics.cost import USD_PER_REQUEST, requests_cost_usd, storage_cost_usd
from catena.metrics.families import CONTENT_TYPE, exposition
from catena.metrics.figures import (
    CacheCounts,
    Cluster,
    CostFigures,
    Identity,
    JobFigures,
    KafkaFigures,
    NodeFigures,
    ReadFigures,
)
from catena.metrics.groups import SLOTS, SLOTS_APART, GroupLooks, GroupsFigures
from catena.metrics.http_counts import HttpCounts
from catena.metrics.lazily import Lazily
from catena.metrics.process import look
from catena.metrics.prometheus import families
from catena.metrics.stored import StoredFigures, scan
from catena.metrics.topics import LOOKS, LOOKS_APART, TopicFigures, TopicLooks
from catena.node import Node
from catena.pipeline.last_runs import GoodRun, last_runs
from catena.runtime import Clock, Tasks
from catena.stores import Stores
from catena.virtual_log.topic_view import TopicView

PATHS = {"/metrics": "GET", "/metrics/prometheus": "GET"}


class Counting(NamedTuple):
    """The parts of a node that count."""

    settings: Settings
    stores: Stores
    node: Node
    view: TopicView
    server: Server
    broker: Broker
    coordinator: Coordinator
    membership: Membership
    retention: Retention
    http: HttpCounts
    state: Callable[[], NodeState]


class NodeMetrics:
    """Usable until `tasks` are closed."""

    def __init__(self, parts: Counting, clock: Clock, tasks: Tasks) -> None:
        self._parts = parts
        self._clock = clock
        self._started = clock.monotonic()
        self._requests_at_start = self._requests()
        settings = parts.settings.metrics
        can_transact = parts.node.meta.can_transact
        every_s = settings.look_every_ms / 1000
        topics = TopicLooks(
            parts.membership,
            parts.view,
            parts.node.open_log,
            clock,
            LOOKS if can_transact else LOOKS_APART,
            settings.topics,
        )
        self._group_looks = GroupLooks(
            parts.view, parts.node.open_log, SLOTS if can_transact else SLOTS_APART, settings.groups
        )
        self._topics: Lazily[dict[str, TopicFigures]] = Lazily("topics", topics.look, every_s, clock, tasks)
        self._groups: Lazily[GroupsFigures] = Lazily("groups", self._look_at_groups, every_s, clock, tasks)
        self._jobs: Lazily[dict[str, GoodRun]] = Lazily("jobs", self._look_at_jobs, every_s, clock, tasks)
        scan_every_s = settings.scan_every_ms / 1000
        self._stored: Lazily[StoredFigures] = Lazily("stored objects", self._scan, scan_every_s, clock, tasks)
        self._scan_requests = 0

    @property
    def routes(self) -> Routes:
        return {"/metrics": {"GET": self.json}, "/metrics/prometheus": {"GET": self.prometheus}}

    async def json(self, _request: HttpRequest) -> HttpResponse:
        return json_response(await self.figures())

    async def prometheus(self, _request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, exposition(families(await self.figures())), CONTENT_TYPE)

    async def figures(self) -> NodeFigures:
        """Counters are those of one moment, after the looks; they are not copied, so use it at once."""
        is_to_scan = self._is_to_scan
        looks: list[Lazily[Any]] = [self._topics, self._groups, self._jobs]
        for each in [*looks, self._stored] if is_to_scan else looks:
            each.start()  # beside each other, so that who has to wait waits once
        stored = await self._stored.get() if is_to_scan else None
        topics, groups, jobs = await self._topics.get(), await self._groups.get(), await self._jobs.get()
        parts = self._parts
        return NodeFigures(
            at_ms=self._clock.now_ms(),
            node=self._identity(),
            cluster=self._cluster(),
            settings=parts.settings.diskless.writer,
            process=look(),
            kafka=self._kafka(),
            http=parts.http.paths,
            fetched=parts.broker.sent,
            writer=parts.node.diskless.writer.counts,
            queue=parts.node.diskless.writer.queue,
            commit=parts.node.diskless.committer.counts,
            reads=self._reads(),
            meta_store=dict(parts.stores.meta_calls.snapshot()),
            object_store=dict(parts.stores.requests.snapshot()),
            requests_at_start=self._requests_at_start,
            cost=CostFigures(
                requests_usd=requests_cost_usd(self._requests()),
                scans_usd=self._scan_requests * USD_PER_REQUEST["list"],
                storage_usd_per_month=None if stored is None else storage_cost_usd(sum(stored.bytes.values())),
            ),
            stored=stored,
            topics=topics,
            groups=groups,
            jobs=JobFigures(
                last_good=jobs or {},
                retention_at_ms=parts.retention.last_round_at_ms,
                retention_every_ms=parts.settings.kafka.retention.every_ms,
                retention_trimmed=parts.retention.trimmed,
            ),
            failures={
                name: each.failures
                for name, each in (
                    ("topics", self._topics),
                    ("groups", self._groups),
                    ("jobs", self._jobs),
                    ("stored", self._stored),
                )
            },
        )

    def _requests(self) -> dict[str, int]:
        return {kind: counts.requests for kind, counts in self._parts.stores.requests.snapshot().items()}

    @property
    def _is_to_scan(self) -> bool:
        """One node of the cluster does it for all."""
        settings, membership = self._parts.settings.metrics, self._parts.membership
        return settings.scan_every_ms > 0 and membership.last_view.nodes[:1] == (membership.record,)

    async def _scan(self) -> StoredFigures:
        found = await scan(self._parts.stores.objects, self._clock)
        self._scan_requests += found.requests
        self._stored.every_s = max(self._parts.settings.metrics.scan_every_ms / 1000, found.pause_s)
        return found

    async def _look_at_groups(self) -> GroupsFigures:
        return await self._group_looks.look(self._parts.coordinator.held)

    async def _look_at_jobs(self) -> dict[str, GoodRun]:
        return await last_runs(self._parts.node.meta)

    def _identity(self) -> Identity:
        settings, record = self._parts.settings, self._parts.membership.record
        return Identity(
            id=record.node_id,
            cluster_id=self._parts.node.cluster_id,
            rack=record.rack,
            roles=record.roles,
            version=version("catena-log"),
            state=self._parts.state().status,
            started_at_ms=record.started_at_ms,
            uptime_s=round(self._clock.monotonic() - self._started, 3),
            meta_store=settings.meta_url.partition(":")[0],
            object_store=settings.objects_url.partition(":")[0],
            scenario=settings.metrics.scenario,
        )

    def _cluster(self) -> Cluster:
        topics = self._parts.view.last_all()
        partitions = sum(topic.partitions for topic in topics)
        return Cluster(len(self._parts.membership.last_view.nodes), len(topics), partitions)

    def _kafka(self) -> KafkaFigures:
        counts = self._parts.server.counts
        return KafkaFigures(
            connections=self._parts.server.connections,
            connections_opened=counts.connections_opened,
            connections_cut_off=counts.connections_cut_off,
            apis=counts.apis,
            fetch_zones=counts.fetch_zones,
            fetches_sent_on=self._parts.broker.sent_on,
        )

    def _reads(self) -> ReadFigures:
        diskless, tiered = self._parts.node.diskless, self._parts.node.tiered
        return ReadFigures(
            caches={
                "tail": CacheCounts(diskless.tail_cache.hits, diskless.tail_cache.misses),
                "blobs": CacheCounts(diskless.blobs.hits, diskless.blobs.misses),
                "segments": CacheCounts(tiered.pieces.hits, tiered.pieces.misses),
            },
            find=diskless.reader.index.counts,
            lagging=diskless.blobs.lagging,
            shared_tail=diskless.tail_counts(),
        )
