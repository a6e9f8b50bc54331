"""A pass of compaction, from settings to a report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import catena
from catena import jobs
from catena.config import Settings, load
from catena.errors import ConfigError, UnknownTopic
from catena.jobs import Which
from catena.jobs.compacting import find_compacted
from catena.pipeline.settings import PipelineSettings, TierSettings
from catena.runtime import SystemClock, SystemEntropy
from tests.jobs.topics import inline

pytest.importorskip("pyarrow", reason="what compacts comes with the spark extra")


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    """Two topics of which one is to be compacted; each key in it is there five times."""
    async with catena.open(tmp_path) as log:
        await log.create_topic("t", 2)
        await log.create_topic("plain", 1)
        await log.node.topics.alter_configs("t", lambda _: {"cleanup.policy": "compact"})
        for number in range(50):
            await log.append("t", f"{number}", key=f"{number % 10}", partition=number % 2)
            await log.append("plain", f"{number}", key="same")
    tier = TierSettings(min_age_ms=0, min_bytes=0)
    found = msgspec.structs.replace(load(data=str(tmp_path)), pipeline=PipelineSettings(tier))
    await jobs.tier(found, open_work=inline(found), force_up_to=jobs.MAX_OFFSET)
    return found


async def content(settings: Settings, topic: str) -> list[str]:
    async with catena.open(Path(settings.data)) as log:
        return [
            (record.value or b"").decode()
            for partition in range(2 if topic == "t" else 1)
            async for record in log.read(topic, partition=partition)
        ]


async def test_topics_that_ask_for_it_are_compacted(settings: Settings) -> None:
    report = await jobs.compact(settings, open_work=inline(settings))
    assert [(each.partition, each.outcome, each.records) for each in report.partitions] in (
        [(0, "compacted", 5), (1, "compacted", 5)],
        [(1, "compacted", 5), (0, "compacted", 5)],
    )
    assert (report.job, report.idle, report.failed, report.left_to_others) == ("compact", 0, 0, 0)
    assert sum(usage.tasks for usage in report.executors.values()) == 6
    assert sorted(await content(settings, "t"), key=int) == [f"{number}" for number in range(40, 50)]
    assert len(await content(settings, "plain")) == 50
    again = await jobs.compact(settings, open_work=inline(settings))
    assert (again.partitions, again.idle, again.executors) == ((), 2, {})


async def test_a_dry_run_does_nothing(settings: Settings) -> None:
    report = await jobs.compact(settings, dry_run=True, open_work=inline(settings))
    assert [(each.outcome, each.records_before) for each in report.partitions] == [("planned", 25)] * 2
    assert len(await content(settings, "t")) == 50


async def test_one_partition(settings: Settings) -> None:
    report = await jobs.compact(settings, Which("t", 1), open_work=inline(settings))
    assert [(each.partition, each.outcome) for each in report.partitions] == [(1, "compacted")]
    assert len(await content(settings, "t")) == 30


async def test_a_topic_that_is_not_compacted_is_refused_by_name_only(settings: Settings) -> None:
    with pytest.raises(ConfigError, match=r"topic plain is not compacted: `catena topic config plain cleanup\.policy"):
        await jobs.compact(settings, Which("plain"), open_work=inline(settings))
    report = await jobs.compact(settings, Which("plain"), open_work=inline(settings), is_asked_for=False)
    assert (report.partitions, report.idle) == ((), 0)
    with pytest.raises(UnknownTopic):
        await jobs.compact(settings, Which("other"), open_work=inline(settings))


async def test_configs_are_those_of_the_topic(settings: Settings) -> None:
    async with jobs.open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
        found = await find_compacted(site, jobs.EVERYTHING)
        assert [(where.place.tp.topic, where.place.tp.partition) for where in found] == [("t", 0), ("t", 1)]
        assert all(where.topic.compact and where.topic.min_dirty_ratio == 0.5 for where in found)
