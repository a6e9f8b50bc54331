"""Jobs by their settings: which partitions they are for, and what keeps them from beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

import catena
from catena import jobs
from catena.errors import MetaBehind, UnknownPartition, UnknownTopic
from catena.pipeline.last_runs import last_runs
from catena.runtime import SystemClock, SystemEntropy
from tests.backups import SqliteBackups
from tests.jobs.topics import inline, make_topics, no_spark


async def test_partitions_are_found_by_topic_and_number(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)
    async with jobs.open_site(settings, SystemClock(), SystemEntropy()) as (site, _):

        async def found(topic: str | None = None, partition: int | None = None) -> list[str]:
            return [str(place.tp) for place in await jobs.find_places(site, jobs.Which(topic, partition))]

        assert await found() == ["a/0", "a/1", "b/0", "b/1", "b/2"]
        assert await found("b") == ["b/0", "b/1", "b/2"]
        assert await found("b", 2) == ["b/2"]
        with pytest.raises(UnknownTopic):
            await found("c")
        with pytest.raises(UnknownPartition):
            await found("b", 3)


async def test_no_job_begins_on_a_meta_store_that_was_set_back(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)
    backups = SqliteBackups(tmp_path / "meta.db")
    await backups.take()
    async with catena.open(tmp_path) as log:
        await log.append("a", "x")
    await backups.restore()
    with pytest.raises(MetaBehind):
        await jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, open_work=no_spark)


async def test_a_good_run_of_everything_is_noted(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)

    async def noted() -> set[str]:
        async with jobs.open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
            return set(await last_runs(site.meta))

    await jobs.tier(settings, jobs.Which("b"), open_work=no_spark)
    await jobs.tier(settings, dry_run=True, open_work=no_spark)
    await jobs.tier(settings, open_work=no_spark, should_stop=lambda: True)
    await jobs.retention(settings, dry_run=True)
    assert await noted() == set()
    await jobs.tier(settings, open_work=no_spark)
    await jobs.retention(settings)
    await jobs.compact(settings, open_work=no_spark)
    await jobs.vacuum(settings, open_work=inline(settings))
    assert await noted() == {"tier", "retention", "compact", "vacuum"}
