"""Retention by the topics' configs, as a job."""

from __future__ import annotations

from pathlib import Path

import pytest

import catena
from catena import jobs
from catena.config import load
from catena.jobs import trimming
from catena.runtime import SystemClock, SystemEntropy


async def test_what_is_too_old_is_trimmed_of_the_partitions_that_are_asked_for(tmp_path: Path) -> None:
    async with catena.open(tmp_path) as log:
        await log.create_topic("t", 2)
        for partition in (0, 1):
            for time in (10, 20):
                await log.append("t", "x", partition=partition, timestamp_ms=time)
            await log.append("t", "x", partition=partition)
        await log.node.topics.alter_configs("t", lambda _: {"retention.ms": "60000"})
    settings = load(data=str(tmp_path))

    async def trimmed(dry_run: bool = False, partition: int | None = None) -> list[tuple[int, int, int]]:
        report = await jobs.retention(settings, jobs.Which("t", partition), dry_run)
        assert (report.failed, report.dry_run) == (0, dry_run)
        return [(each.partition, each.start, each.new_start) for each in report.partitions]

    assert await trimmed(dry_run=True) == [(0, 0, 2), (1, 0, 2)]
    assert await trimmed(partition=1) == [(1, 0, 2)]
    assert await trimmed() == [(0, 0, 2)]
    assert await trimmed() == []


async def test_told_to_stop_it_does_so_between_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "GROUP", 1)
    async with catena.open(tmp_path) as log:
        await log.create_topic("t", 3)
        for partition in range(3):
            await log.append("t", "x", partition=partition, timestamp_ms=10)
        await log.node.topics.alter_configs("t", lambda _: {"retention.ms": "60000"})
    settings = load(data=str(tmp_path))
    asked = iter([False, False, True])
    async with jobs.open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
        report = await trimming.retention_on(site, settings, should_stop=lambda: next(asked))
        assert ([each.partition for each in report.partitions], report.stopped) == ([0, 1], True)
        report = await trimming.retention_on(site, settings)
        assert ([each.partition for each in report.partitions], report.stopped) == ([2], False)
