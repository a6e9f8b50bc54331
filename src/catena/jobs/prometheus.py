"""The counts of the service, as Prometheus reads them. Few series, whatever the number of partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from catena.jobs.cost import requests_cost_usd
from catena.pipeline.service import ServiceCounts
from catena.pipeline.work import Usage

PREFIX = "catena_pipeline_"


def exposition(counts: ServiceCounts, failing: int, tasks: Usage, driver: Usage) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector([*_of_service(counts, failing), *_of_usage(tasks, driver)]))
    return generate_latest(registry)


class _Collector:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _of_service(counts: ServiceCounts, failing: int) -> Iterator[Metric]:
    yield _counter("passes", "Passes over all partitions.", counts.passes)
    yield _counter("failed_passes", "Passes that could not be done.", counts.failed_passes)
    yield _counter("pass_seconds", "Time that passes took.", counts.pass_seconds)
    yield _gauge("last_pass_timestamp_seconds", "When the last pass ended.", _seconds(counts.last_pass_at_ms))
    good = _seconds(counts.last_good_pass_at_ms)
    yield _gauge("last_good_pass_timestamp_seconds", "When the last pass ended in which nothing failed.", good)
    yield _gauge("partitions", "Partitions that the last pass looked at.", counts.partitions)
    yield _gauge("candidates", "Of these, where there was something to do.", counts.candidates)
    yield _gauge("failing_partitions", "Partitions that failed the last time they were tried.", failing)
    yield _counters("partition_outcomes", "What became of partitions.", "outcome", counts.outcomes)
    yield _counters("recoveries", "What became of jobs that were left behind.", "recovery", counts.recoveries)
    yield _counter("segments_written", "Segments written.", counts.segments)
    yield _counter("segments_merged", "Small segments that became larger ones.", counts.merged)
    yield _counter("segments_dropped", "Segments let go, below the start of their log.", counts.dropped)
    yield _counter("runs_tiered", "Runs of the WAL that were tiered.", counts.runs)
    yield _counter("bytes_tiered", "Bytes of runs and segments that were rewritten.", counts.bytes)


def _of_usage(tasks: Usage, driver: Usage) -> Iterator[Metric]:
    yield _counter("tasks", "Tasks that have ended.", tasks.tasks)
    yield _counter("task_read_bytes", "Bytes that tasks have read from the object store.", tasks.bytes_read)
    yield _counter("task_written_bytes", "Bytes that tasks have written to it.", tasks.bytes_written)
    requests = CounterMetricFamily(
        PREFIX + "object_store_requests", "Requests to the object store.", labels=["by", "kind"]
    )
    for by, usage in (("tasks", tasks), ("driver", driver)):
        for kind, count in usage.requests.items():
            requests.add_metric([by, kind], count)
    yield requests
    cost = requests_cost_usd(tasks.requests) + requests_cost_usd(driver.requests)
    yield _counter("object_store_requests_cost_usd", "What these cost on S3 Standard, as an estimate.", cost)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _seconds(timestamp_ms: int | None) -> float:
    return 0.0 if timestamp_ms is None else timestamp_ms / 1000
