"""What Prometheus is told of a node, as its own parser reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from catena.broker.request_counts import ApiCounts, Zones
from catena.broker.sending_on import SentOn
from catena.counting import OperationCounts, Sent
from catena.loglets.diskless.counts import CommitCounts, FindCounts, TailCounts, WriterCounts, WriterQueue
from catena.loglets.diskless.writer import WriterSettings
from catena.meta.counted import KINDS as META_KINDS
from catena.metrics.families import exposition
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
from catena.metrics.groups import GroupFigures, GroupsFigures
from catena.metrics.http_counts import PathCounts
from catena.metrics.process import ProcessFigures
from catena.metrics.prometheus import families
from catena.metrics.stored import StoredFigures
from catena.metrics.topics import TopicFigures
from catena.objects.counted import KINDS as OBJECT_KINDS
from catena.pipeline.last_runs import GoodRun

NAME = re.compile(r"(catena|process)_[a-z_]*[a-z]")
UNITS = re.compile(r"_(seconds|bytes|records|usd|total|info|max)$")


def figures() -> NodeFigures:
    fetch = ApiCounts(requests=5, errors={"OFFSET_OUT_OF_RANGE": 2}, bytes_in=10, bytes_out=20)
    fetch.seconds.observe(0.25)
    commit = CommitCounts(batches=3, records=30, bytes=300, failures={"StoreUnavailable": 1})
    tail = TailCounts(21, 22, 23, 24, 9, 25, 26, 27, 28, 29)
    return NodeFigures(
        at_ms=1_000_000,
        node=Identity(
            id=7,
            cluster_id="c",
            rack="a",
            roles=("write", "read"),
            version="1",
            state="ready",
            started_at_ms=1,
            uptime_s=2.5,
            meta_store="sqlite",
            object_store="s3",
            scenario="smoke",
        ),
        cluster=Cluster(3, 4, 5),
        settings=WriterSettings(batch_max_delay_ms=250),
        process=ProcessFigures(1.5, 1000, 20, 100, 4),
        kafka=KafkaFigures(2, 9, 1, {"Fetch": fetch}, Zones(1, 2, 3), SentOn(11, 12, 13)),
        http={"/produce": PathCounts(answers={"POST 200": 4}, bytes_in=1, bytes_out=2)},
        fetched=Sent(5, 1, 3, 30, 300),
        writer=WriterCounts(),
        queue=WriterQueue(1, 2, 3, 4),
        commit=commit,
        reads=ReadFigures({"tail": CacheCounts(8, 2)}, FindCounts(), 6, tail),
        meta_store={kind: OperationCounts(requests=1) for kind in META_KINDS},
        object_store={kind: OperationCounts(requests=2, errors={"Conflict": 1}) for kind in OBJECT_KINDS},
        requests_at_start={},
        cost=CostFigures(0.5, 0.125, 23.0),
        stored=StoredFigures(999_000, {"wal": 2}, {"wal": 200}, 1),
        topics={
            "t": TopicFigures(partitions=2, looked_at=1, records=9, bytes=90, untiered_records=4, links=2, epoch=3)
        },
        groups=GroupsFigures(3, 1, {"g": GroupFigures(2, 15, 10)}),
        jobs=JobFigures({"tier": GoodRun(940_000, 1.0, 60_000)}, 990_000, 300_000, 3),
        failures={"topics": 1},
    )


def parsed(told: NodeFigures | None = None) -> Iterator[Metric]:
    yield from text_string_to_metric_families(exposition(families(told or figures())).decode())


def samples(told: NodeFigures | None = None) -> dict[tuple[str, ...], float]:
    found = {}
    for family in parsed(told):
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in found, key
            found[key] = sample.value
    return found


def test_every_family_has_a_name_and_says_what_it_is() -> None:
    for family in parsed():
        assert NAME.fullmatch(family.name), family.name
        assert family.documentation.endswith("."), family.name
        if family.type == "histogram":
            assert UNITS.search(family.name) or family.name.endswith(("partitions", "partition")), family.name
    names = [family.name for family in parsed()]
    assert len(names) == len(set(names))


def test_labels_have_few_values() -> None:
    labels = {label for family in parsed() for sample in family.samples for label in sample.labels}
    bounded = {
        "api",
        "error",
        "zone",
        "path",
        "method",
        "status",
        "reason",
        "cache",
        "operation",
        "kind",
        "name",
        "what",
        "state",
    }
    by_setting = {"topic", "group", "scenario", "le"}
    identity = {"node", "cluster", "rack", "roles", "version", "meta_store", "object_store"}
    assert labels <= bounded | by_setting | identity


def test_what_is_told() -> None:
    found = samples()
    for key, value in {
        ("catena_node_info", "c", "sqlite", "7", "s3", "a", "write,read", "1"): 1,
        ("catena_loadtest_info", "smoke"): 1,
        ("catena_node_ready",): 1,
        ("catena_node_state", "ready"): 1,
        ("catena_node_state", "read-only"): 0,
        ("catena_cluster_nodes",): 3,
        ("process_cpu_seconds_total",): 1.5,
        ("catena_kafka_requests_total", "Fetch"): 5,
        ("catena_kafka_request_errors_total", "Fetch", "OFFSET_OUT_OF_RANGE"): 2,
        ("catena_kafka_request_seconds_bucket", "Fetch", "0.2"): 0,
        ("catena_kafka_request_seconds_bucket", "Fetch", "0.5"): 1,
        ("catena_kafka_fetch_zones_total", "other"): 2,
        ("catena_http_requests_total", "POST", "/produce", "200"): 4,
        ("catena_writer_batch_max_delay_seconds",): 0.25,
        ("catena_writer_held_bytes",): 1,
        ("catena_produced_records_total",): 30,
        ("catena_fetched_bytes_total",): 300,
        ("catena_cache_hits_total", "tail"): 8,
        ("catena_lagging_reads_total",): 6,
        ("catena_kafka_fetches_sent_on_total",): 11,
        ("catena_kafka_fetches_not_sent_on_total",): 12,
        ("catena_kafka_fetches_refused_total",): 13,
        ("catena_tail_published_batches_total",): 21,
        ("catena_tail_published_bytes_total",): 22,
        ("catena_tail_left_out_batches_total",): 23,
        ("catena_tail_rings",): 24,
        ("catena_tail_heard_batches_total",): 9,
        ("catena_tail_heard_bytes_total",): 25,
        ("catena_tail_gaps_total",): 26,
        ("catena_tail_lost_total",): 27,
        ("catena_tail_evicted_batches_total",): 28,
        ("catena_tail_fallbacks_total",): 29,
        ("catena_meta_store_requests_total", "transact"): 1,
        ("catena_object_store_requests_total", "range_get"): 2,
        ("catena_object_store_errors_total", "Conflict", "put"): 1,
        ("catena_object_store_requests_cost_usd_total",): 0.5,
        ("catena_object_store_scans_cost_usd_total",): 0.125,
        ("catena_stored_cost_usd_per_month",): 23,
        ("catena_stored_bytes", "wal"): 200,
        ("catena_topic_untiered_records", "t"): 4,
        ("catena_group_lag_records", "g"): 15,
        ("catena_group_lag_records_max", "g"): 10,
        ("catena_job_last_success_age_seconds", "tier"): 60,
        ("catena_job_last_success_age_seconds", "node-retention"): 10,
        ("catena_job_every_seconds", "tier"): 60,
        ("catena_job_every_seconds", "node-retention"): 300,
        ("catena_metrics_failures_total", "topics"): 1,
    }.items():
        assert found[key] == value, key


def test_retention_that_never_succeeded_gets_older_since_the_node_began() -> None:
    told = figures()
    never = msgspec.structs.replace(told, jobs=msgspec.structs.replace(told.jobs, retention_at_ms=None))
    assert samples(never)["catena_job_last_success_age_seconds", "node-retention"] == 999.999


def test_the_page_has_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    table = page.partition("## What there is")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    told = {f"{family.name}_total" if family.type == "counter" else family.name for family in parsed()}
    assert named == {name.removeprefix("catena_") for name in told}
