"""A pass of tiering by its settings; with Spark it is run in tests/pipeline and tests/cli."""

from __future__ import annotations

from pathlib import Path

from catena import jobs
from tests.jobs.topics import make_topics, no_spark


async def test_where_nothing_is_old_enough_spark_is_not_started(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)
    report = await jobs.tier(settings, open_work=no_spark)
    assert (report.partitions, report.idle, report.failed) == ((), 5, 0)


async def test_a_dry_run_tells_what_would_be_done(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)
    report = await jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, dry_run=True, open_work=no_spark)
    assert [(each.topic, each.partition, each.outcome, each.boundary) for each in report.partitions] == [
        ("b", 1, "planned", 2)
    ]
    assert report.driver.bytes_written == 0
