"""What Prometheus is told, as its own parser reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from catena.jobs.prometheus import exposition
from catena.pipeline.service import ServiceCounts
from catena.pipeline.work import Usage


def test_counts_come_out_as_they_went_in() -> None:
    counts = ServiceCounts(
        passes=3, last_pass_at_ms=1500, outcomes={"tiered": 2, "failed": 1}, recoveries={"abandoned": 1}, bytes=10**12
    )
    tasks, driver = Usage(4, 100, 200, {"get": 7}), Usage(0, 0, 0, {"put": 1000})
    families = list(text_string_to_metric_families(exposition(counts, 5, tasks, driver).decode()))
    assert all(family.documentation for family in families)
    found = {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}
    assert found["catena_pipeline_passes_total",] == 3
    assert found["catena_pipeline_last_pass_timestamp_seconds",] == 1.5
    assert found["catena_pipeline_last_good_pass_timestamp_seconds",] == 0
    assert found["catena_pipeline_partition_outcomes_total", "tiered"] == 2
    assert found["catena_pipeline_recoveries_total", "abandoned"] == 1
    assert found["catena_pipeline_bytes_tiered_total",] == 1e12
    assert found["catena_pipeline_failing_partitions",] == 5
    assert found["catena_pipeline_object_store_requests_total", "tasks", "get"] == 7
    assert found["catena_pipeline_object_store_requests_total", "driver", "put"] == 1000
    assert round(found["catena_pipeline_object_store_requests_cost_usd_total",], 6) == 0.005003
