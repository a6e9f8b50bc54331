"""All that a node tells of itself, as one value: GET /metrics is this as JSON.

Counts begin with the process. Whatever is None is not known: nobody has looked yet, or another node tells of it.
"""

from __future__ import annotations

import msgspec

from catena.broker.request_counts import ApiCounts, Zones
from catena.broker.sending_on import SentOn
from catena.counting import OperationCounts, Sent
from catena.loglets.diskless.counts import CommitCounts, FindCounts, TailCounts, WriterCounts, WriterQueue
from catena.loglets.diskless.writer import WriterSettings
from catena.metrics.groups import GroupsFigures
from catena.metrics.http_counts import PathCounts
from catena.metrics.process import ProcessFigures
from catena.metrics.stored import StoredFigures
from catena.metrics.topics import TopicFigures
from catena.pipeline.last_runs import GoodRun


class Identity(msgspec.Struct, frozen=True):
    id: int
    cluster_id: str
    rack: str | None
    roles: tuple[str, ...]
    version: str
    state: str
    started_at_ms: int
    uptime_s: float
    meta_store: str
    """Its kind; an address may hold a password."""
    object_store: str
    scenario: str
    """Of the load test that it runs in; empty: none."""


class Cluster(msgspec.Struct, frozen=True):
    """As this node sees it."""

    nodes: int
    topics: int
    partitions: int


class KafkaFigures(msgspec.Struct, frozen=True):
    connections: int
    connections_opened: int
    connections_cut_off: int
    apis: dict[str, ApiCounts]
    fetch_zones: Zones
    fetches_sent_on: SentOn = msgspec.field(default_factory=SentOn)
    """By a node that does not read."""


class CacheCounts(msgspec.Struct, frozen=True):
    hits: int
    misses: int


class ReadFigures(msgspec.Struct, frozen=True):
    caches: dict[str, CacheCounts]
    """Tail cache, blobs, segments."""
    find: FindCounts
    lagging: int
    """Reads of old data."""
    shared_tail: TailCounts = msgspec.field(default_factory=TailCounts)
    """What other processes of this host have told of, by the folder that they share, and were told."""


class JobFigures(msgspec.Struct, frozen=True):
    last_good: dict[str, GoodRun]
    """Of the pipeline's jobs, by whoever runs them."""
    retention_at_ms: int | None
    """When this node last looked at all its partitions."""
    retention_every_ms: int
    """How often it does."""
    retention_trimmed: int


class CostFigures(msgspec.Struct, frozen=True):
    """At list prices: see `catena.metrics.cost`."""

    requests_usd: float
    """Of all requests of this node so far."""
    scans_usd: float
    """Of these, for knowing how much is stored."""
    storage_usd_per_month: float | None
    """Of the whole bucket."""


class NodeFigures(msgspec.Struct, frozen=True):
    at_ms: int
    node: Identity
    cluster: Cluster
    settings: WriterSettings
    process: ProcessFigures
    kafka: KafkaFigures
    http: dict[str, PathCounts]
    fetched: Sent
    """By fetches of Kafka's clients, and over HTTP."""
    writer: WriterCounts
    queue: WriterQueue
    commit: CommitCounts
    reads: ReadFigures
    meta_store: dict[str, OperationCounts]
    object_store: dict[str, OperationCounts]
    requests_at_start: dict[str, int]
    """To the object store, by kind, before `uptime_s` began: a rate has to leave them out."""
    cost: CostFigures
    stored: StoredFigures | None
    topics: dict[str, TopicFigures] | None
    groups: GroupsFigures | None
    jobs: JobFigures
    failures: dict[str, int]
    """Of the looks that these need, by what could not be read."""
