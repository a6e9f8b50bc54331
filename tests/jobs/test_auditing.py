"""The audit by its settings: what is asked for is looked at."""

from __future__ import annotations

from pathlib import Path

from catena import jobs
from tests.jobs.topics import inline, make_topics


async def test_of_some_partitions_orphans_are_not_counted(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)
    report = await jobs.audit(settings, jobs.Which("b"), inline(settings))
    assert (report.ok, report.partitions, report.offsets, report.orphans) == (True, 3, 2, None)
    assert report.driver.bytes_read == 0


async def test_damage_is_found(tmp_path: Path) -> None:
    settings = await make_topics(tmp_path)
    (blob, *_) = sorted((tmp_path / "objects" / "llog" / "wal-shared").iterdir())
    blob.unlink()
    report = await jobs.audit(settings, open_work=inline(settings))
    assert not report.ok
    assert blob.name in report.damage[0].key
