"""The figures of a node, as Prometheus reads them: base units, few labels, each with few values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client import Metric

from catena.counting import OperationCounts, Sent
from catena.http.health import Status
from catena.loglets.diskless.counts import TailCounts
from catena.metrics.families import Families
from catena.metrics.figures import (
    CostFigures,
    Identity,
    JobFigures,
    KafkaFigures,
    NodeFigures,
    ReadFigures,
)
from catena.metrics.groups import GroupsFigures
from catena.metrics.http_counts import PathCounts
from catena.metrics.process import ProcessFigures
from catena.metrics.stored import StoredFigures
from catena.metrics.topics import TopicFigures

_ALL = Families("catena_")
_PROCESS = Families("process_")


def families(figures: NodeFigures) -> Iterator[Metric]:
    yield from _of_node(figures)
    yield from _of_process(figures.process)
    yield from _of_kafka(figures.kafka)
    yield from _of_http(figures.http)
    yield from _of_writer(figures)
    yield from _of_reads(figures.reads, figures.fetched)
    yield from _of_shared_tail(figures.reads.shared_tail)
    yield from _of_store("meta_store", "the meta store", figures.meta_store)
    yield from _of_store("object_store", "the object store", figures.object_store)
    yield from _of_cost(figures.cost)
    if figures.stored is not None:
        yield from _of_stored(figures.stored)
    if figures.topics is not None:
        yield from _of_topics(figures.topics)
    if figures.groups is not None:
        yield from _of_groups(figures.groups)
    yield from _of_jobs(figures.jobs, figures.at_ms, figures.node.started_at_ms)
    yield _ALL.counters("metrics_failures", "Looks for metrics that failed.", "what", figures.failures)


def _of_node(figures: NodeFigures) -> Iterator[Metric]:
    node = figures.node
    yield _ALL.gauges_by(
        "node_info", "Who the node is; always 1.", list(_labels(node)), [(list(_labels(node).values()), 1)]
    )
    if node.scenario:
        yield _ALL.gauges("loadtest_info", "The load test that it runs in; always 1.", "scenario", {node.scenario: 1})
    yield _ALL.gauge(
        "node_ready", "Whether clients are sent to it and it takes what they write.", node.state == "ready"
    )
    states = {state: float(state == node.state) for state in get_args(Status)}
    yield _ALL.gauges("node_state", "1 for the state that it is in, 0 for the others.", "state", states)
    yield _ALL.gauge("node_uptime_seconds", "Since the node serves.", node.uptime_s)
    yield _ALL.gauge("cluster_nodes", "Nodes that this one sees, itself included.", figures.cluster.nodes)
    yield _ALL.gauge("cluster_topics", "Topics that it sees.", figures.cluster.topics)
    yield _ALL.gauge("cluster_partitions", "Partitions of these.", figures.cluster.partitions)


def _labels(node: Identity) -> dict[str, str]:
    return {
        "node": str(node.id),
        "cluster": node.cluster_id,
        "rack": node.rack or "",
        "roles": ",".join(node.roles),
        "version": node.version,
        "meta_store": node.meta_store,
        "object_store": node.object_store,
    }


def _of_process(process: ProcessFigures) -> Iterator[Metric]:
    yield _PROCESS.counter("cpu_seconds", "CPU that all its threads took.", process.cpu_seconds)
    yield _PROCESS.gauge("resident_memory_bytes", "Memory that it holds.", process.resident_bytes)
    yield _PROCESS.gauge("open_fds", "Files and sockets that are open.", process.open_fds)
    yield _PROCESS.gauge("max_fds", "So many may be.", process.max_fds)
    yield _PROCESS.gauge("threads", "Threads.", process.threads)


def _of_kafka(kafka: KafkaFigures) -> Iterator[Metric]:
    yield _ALL.gauge("kafka_connections", "Connections of Kafka clients that are open.", kafka.connections)
    yield _ALL.counter("kafka_connections_opened", "That were opened.", kafka.connections_opened)
    text = "That this node cut off, because of what clients did."
    yield _ALL.counter("kafka_connections_cut_off", text, kafka.connections_cut_off)
    apis = _ALL.each("kafka_", "api", kafka.apis)
    yield apis.counter("requests", "Requests that were answered.", lambda api: api.requests)
    text = "Errors within answers; a request of many partitions may have many."
    yield apis.counters("request_errors", text, "error", lambda api: api.errors)
    yield apis.counter("received_bytes", "Bytes of requests.", lambda api: api.bytes_in)
    yield apis.counter("sent_bytes", "Bytes of answers.", lambda api: api.bytes_out)
    text = "From a request's turn to its answer; waits that clients ask for are part of it."
    yield apis.histogram("request_seconds", text, lambda api: api.seconds)
    sent_on = kafka.fetches_sent_on
    text = "Partitions of fetches whose clients were sent to a node that reads, since this one does not."
    yield _ALL.counter("kafka_fetches_sent_on", text, sent_on.sent)
    text = "The same, served here because the client came back."
    yield _ALL.counter("kafka_fetches_not_sent_on", text, sent_on.served)
    yield _ALL.counter("kafka_fetches_refused", "The same, refused because no node reads.", sent_on.refused)
    zones = kafka.fetch_zones
    text = "Fetches by where the client says it is, as seen from this node's rack."
    by_zone = {"same": zones.same, "other": zones.other, "unknown": zones.unknown}
    yield _ALL.counters("kafka_fetch_zones", text, "zone", by_zone)


def _of_http(paths: Mapping[str, PathCounts]) -> Iterator[Metric]:
    answers = [
        ([path, *key.split(" ")], count) for path, counts in paths.items() for key, count in counts.answers.items()
    ]
    text = "Requests over HTTP that were answered."
    yield _ALL.counters_by("http_requests", text, ["path", "method", "status"], answers)
    each = _ALL.each("http_", "path", paths)
    yield each.counter("received_bytes", "Bytes of their bodies.", lambda path: path.bytes_in)
    yield each.counter("sent_bytes", "Bytes of answers.", lambda path: path.bytes_out)
    yield each.histogram("request_seconds", "From a request to its answer; long polls wait.", lambda path: path.seconds)


def _of_writer(figures: NodeFigures) -> Iterator[Metric]:
    settings, writer, queue, commit = figures.settings, figures.writer, figures.queue, figures.commit
    yield _ALL.gauge(
        "writer_batch_max_bytes", "Setting: a blob is sent once it holds so much.", settings.batch_max_bytes
    )
    delay_s = settings.batch_max_delay_ms / 1000
    yield _ALL.gauge("writer_batch_max_delay_seconds", "Setting: how long an entry waits for company.", delay_s)
    yield _ALL.gauge("writer_uploads_max", "Setting: uploads in flight.", settings.uploads_in_flight)
    yield _ALL.gauge("writer_buffer_max_bytes", "Setting: more is refused.", settings.buffer_max_bytes)
    yield _ALL.gauge("writer_held_bytes", "Taken, and not yet answered.", queue.held_bytes)
    yield _ALL.gauge("writer_forming_bytes", "In the blob that is not sent yet.", queue.forming_bytes)
    yield _ALL.gauge("writer_waiting_blobs", "Blobs that wait for an upload to end.", queue.full_blobs)
    yield _ALL.gauge("writer_uploads", "Uploads in flight.", queue.uploads)
    yield _ALL.counters("writer_blobs", "Blobs that were sent, and why then.", "reason", dict(writer.blobs.items()))
    yield _ALL.histogram("writer_blob_bytes", "Bytes of batches in a blob.", writer.blob_bytes)
    yield _ALL.histogram("writer_blob_partitions", "Partitions that share a blob.", writer.blob_partitions)
    yield _ALL.histogram("writer_upload_seconds", "Until a blob was stored, or given up.", writer.upload_seconds)
    yield _ALL.counter("writer_upload_failures", "Blobs that were given up.", writer.upload_failures)
    yield _ALL.counter("writer_back_pressure", "Appends refused, because too much was held.", writer.back_pressure)
    yield _ALL.gauge("commit_queued_bytes", "Stored, and not yet committed.", commit.queued_bytes)
    text = "From the end of an upload to the start of its commit."
    yield _ALL.histogram("commit_wait_seconds", text, commit.wait_seconds)
    yield _ALL.histogram("commit_seconds", "Commits, each of many partitions.", commit.commit_seconds)
    text = "Batches of one partition in one commit."
    yield _ALL.histogram("commit_batches_per_partition", text, commit.batches_per_partition)
    yield _ALL.counters("commit_failures", "Commits of a partition that were given up.", "error", commit.failures)
    yield _ALL.counter("produced_batches", "Batches that were acked and are new in a log.", commit.batches)
    yield _ALL.counter("produced_records", "Their records.", commit.records)
    yield _ALL.counter("produced_bytes", "Their bytes, as they are stored.", commit.bytes)
    text = "Batches that were there already, or were rejected."
    yield _ALL.counter("produced_duplicates", text, commit.duplicates)


def _of_reads(reads: ReadFigures, fetched: Sent) -> Iterator[Metric]:
    yield _ALL.counter("fetched_requests", "Fetches of Kafka's clients, and over HTTP.", fetched.requests)
    yield _ALL.counter("fetched_batches", "Batches that fetches have brought.", fetched.batches)
    yield _ALL.counter("fetched_records", "Their records.", fetched.records)
    yield _ALL.counter("fetched_bytes", "Their bytes.", fetched.bytes)
    yield _ALL.counter("fetched_empty", "Fetches that brought nothing.", fetched.empty)
    caches = _ALL.each("cache_", "cache", reads.caches)
    yield caches.counter("hits", "Reads that found what they looked for.", lambda cache: cache.hits)
    yield caches.counter("misses", "Reads that did not.", lambda cache: cache.misses)
    yield _ALL.histogram("find_batches_seconds", "Looks into the index for where batches are.", reads.find.seconds)
    text = "Looks into the index that needed no store."
    yield _ALL.counter("find_batches_kept", text, reads.find.kept)
    yield _ALL.counter("lagging_reads", "Reads of old data, by those who are far behind.", reads.lagging)


def _of_shared_tail(tail: TailCounts) -> Iterator[Metric]:
    text = "Batches that this node has told other processes of its host of, by the folder that they share."
    yield _ALL.counter("tail_published_batches", text, tail.published_batches)
    yield _ALL.counter("tail_published_bytes", "Their bytes.", tail.published_bytes)
    text = "Batches that it could not tell of: too many at once, or the folder can't be written to."
    yield _ALL.counter("tail_left_out_batches", text, tail.left_out_batches)
    yield _ALL.gauge("tail_rings", "Processes of its host that it hears.", tail.rings)
    text = "Batches that other processes of its host told of, and that somebody reads here."
    yield _ALL.counter("tail_heard_batches", text, tail.heard_batches)
    yield _ALL.counter("tail_heard_bytes", "Their bytes.", tail.heard_bytes)
    text = "Of these batches, those before which something was not heard, or too late."
    yield _ALL.counter("tail_gaps", text, tail.gaps)
    text = "How often something was overwritten before it was heard, or could not be read."
    yield _ALL.counter("tail_lost", text, tail.lost)
    text = "Batches that left the tail cache to make room, whoever wrote them."
    yield _ALL.counter("tail_evicted_batches", text, tail.evicted_batches)
    text = "Reads of what had been told of, and that the stores had to answer."
    yield _ALL.counter("tail_fallbacks", text, tail.fallbacks)


def _of_store(name: str, whom: str, operations: Mapping[str, OperationCounts]) -> Iterator[Metric]:
    each = _ALL.each(f"{name}_", "operation", operations)
    text = f"Requests to {whom}; of objects as S3 bills them."
    yield each.counter("requests", text, lambda counts: counts.requests)
    yield each.counter("bytes", f"Bytes to and from {whom}.", lambda counts: counts.bytes)
    text = f"Requests to {whom} that failed, or found something else than they expected."
    yield each.counters("errors", text, "error", lambda counts: counts.errors)
    yield each.histogram("seconds", f"Time that calls of {whom} took.", lambda counts: counts.latency)


def _of_cost(cost: CostFigures) -> Iterator[Metric]:
    text = "What this node's requests cost on S3 Standard, as an estimate; add up all nodes."
    yield _ALL.counter("object_store_requests_cost_usd", text, cost.requests_usd)
    text = "Of these, for knowing how much is stored."
    yield _ALL.counter("object_store_scans_cost_usd", text, cost.scans_usd)
    if cost.storage_usd_per_month is not None:
        text = "What a month of what is stored costs on S3 Standard, as an estimate; take the greatest of all nodes."
        yield _ALL.gauge("stored_cost_usd_per_month", text, cost.storage_usd_per_month)


def _of_stored(stored: StoredFigures) -> Iterator[Metric]:
    yield _ALL.gauges("stored_bytes", "Bytes in the bucket; one node tells.", "kind", stored.bytes)
    yield _ALL.gauges("stored_objects", "Objects in the bucket; one node tells.", "kind", stored.objects)
    yield _ALL.gauge("stored_timestamp_seconds", "When they were listed.", stored.at_ms / 1000)
    yield _ALL.gauge("stored_is_complete", "0: there are more than a listing looks at.", stored.is_complete)


def _of_topics(topics: Mapping[str, TopicFigures]) -> Iterator[Metric]:
    gauge = _ALL.each("topic_", "topic", topics).gauge
    yield gauge("partitions", "Partitions that this node leads.", lambda each: each.partitions)
    yield gauge("looked_at_partitions", "Of these, those in the other figures.", lambda each: each.looked_at)
    yield gauge("records", "Offsets from the start of its logs to their tails.", lambda each: each.records)
    yield gauge("bytes", "About how large its logs are.", lambda each: each.bytes)
    yield gauge("untiered_records", "Offsets beyond the boundary: not tiered yet.", lambda each: each.untiered_records)
    yield gauge("chain_links", "Links of the longest chain.", lambda each: each.links)
    yield gauge("chain_epoch", "The highest epoch.", lambda each: each.epoch)
    yield gauge("sealed_partitions", "Partitions that take no appends.", lambda each: each.sealed)


def _of_groups(groups: GroupsFigures) -> Iterator[Metric]:
    gauge = _ALL.each("group_", "group", groups.by_name).gauge
    yield _ALL.gauge("groups", "Groups that this node coordinates.", groups.coordinated)
    yield _ALL.gauge("groups_unmeasured", "Of these, whose lag was not looked for.", groups.unmeasured)
    yield gauge("lag_records", "Offsets from what a group committed to the tails.", lambda each: each.lag)
    yield gauge("lag_records_max", "The same of its partition that has most.", lambda each: each.lag_max)
    yield gauge("partitions", "Partitions that it has committed offsets of.", lambda each: each.partitions)


NODE_RETENTION = "node-retention"


def _of_jobs(jobs: JobFigures, now_ms: int, started_at_ms: int) -> Iterator[Metric]:
    """The label is `name`: Prometheus has a label `job` of its own."""
    at = {job: run.at_ms for job, run in jobs.last_good.items()}
    # A node whose rounds fail from the first one on has none, and somebody has to hear of it.
    at[NODE_RETENTION] = started_at_ms if jobs.retention_at_ms is None else jobs.retention_at_ms
    text = "Since a job last ran and nothing of it failed; of the pipeline, and the retention of this node."
    ages = {job: max(0, now_ms - at_ms) / 1000 for job, at_ms in at.items()}
    yield _ALL.gauges("job_last_success_age_seconds", text, "name", ages)
    every = {job: run.every_ms / 1000 for job, run in jobs.last_good.items()}
    every[NODE_RETENTION] = jobs.retention_every_ms / 1000
    yield _ALL.gauges("job_every_seconds", "How often it is due, where it last ran.", "name", every)
    text = "Logs of which this node trimmed something; one counts each time."
    yield _ALL.counter("retention_trimmed_partitions", text, jobs.retention_trimmed)
