"""Vacuum by its settings."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from catena import jobs
from catena.errors import ConfigError
from catena.pipeline.settings import PipelineSettings, VacuumSettings
from tests.jobs.topics import inline, make_topics, no_spark


def make_old(folder: Path) -> None:
    """All objects are two days old."""
    for path in (folder / "objects").rglob("*"):
        if path.is_file() and path.name != "incarnation":
            then = path.stat().st_mtime - 2 * 24 * 3600
            os.utime(path, (then, then))


async def test_what_was_tiered_is_collected_and_all_is_sound_before_and_after(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)
    tiered = await jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, open_work=inline(settings))
    assert tiered.failed == 0
    make_old(tmp_path)
    audited = await jobs.audit(settings, open_work=inline(settings))
    assert (audited.ok, audited.offsets, audited.orphans and audited.orphans.objects) == (True, 2, 2)
    planned = await jobs.vacuum(settings, dry_run=True, open_work=inline(settings))
    assert sum(amount.objects for amount in planned.orphans.values()) == 2
    assert planned.deleted.objects == 0
    report = await jobs.vacuum(settings, open_work=inline(settings))
    assert (report.deleted.objects, report.failed) == (2, 0)
    audited = await jobs.audit(settings, open_work=inline(settings))
    assert (audited.ok, audited.offsets, audited.orphans and audited.orphans.objects) == (True, 2, 0)


async def test_a_grace_that_writers_may_outlast_is_refused(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)
    short = msgspec.structs.replace(settings, pipeline=PipelineSettings(vacuum=VacuumSettings(grace_ms=59_000)))
    with pytest.raises(ConfigError, match="commit_deadline_ms"):
        await jobs.vacuum(short, open_work=no_spark)
