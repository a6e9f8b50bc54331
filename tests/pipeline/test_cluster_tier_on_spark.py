"""Tiering by executors that are processes of their own. A file of its own, so that Spark is started less often."""

from __future__ import annotations

from pathlib import Path

from catena.config import load
from tests.pipeline.conftest import CLUSTER, Sparks
from tests.pipeline.test_tier_on_spark import RECORDS, VALUE, content, fill, tiered


async def test_all_executors_move_bytes_and_the_driver_none(tmp_path: Path, sparks: Sparks) -> None:
    settings = load(data=str(tmp_path), pipeline={"tier": {"segment_bytes": 100_000, "task_bytes": 100_000}})
    await fill(settings, 0)
    report = await tiered(settings, sparks, CLUSTER)
    assert report.failed == 0
    assert len(report.executors) == 2
    size = RECORDS * len(VALUE)
    assert all(usage.bytes_read > 0 and usage.bytes_written > 0 for usage in report.executors.values())
    assert sum(usage.bytes_read for usage in report.executors.values()) >= size
    assert "range_get" not in report.driver.requests
    assert report.driver.bytes_read < size / 100
    assert await content(settings) == list(range(RECORDS))
