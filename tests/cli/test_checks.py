"""What the doctor finds in stores that are well, and in those that are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import catena
from catena.cli.checks import Finding, check_data_folder, check_python, check_settings, check_stores
from catena.config import Settings
from catena.errors import ConfigError
from catena.meta import keys
from catena.meta.sqlite import SqliteMeta
from catena.runtime import SystemClock, SystemEntropy
from tests.backups import copy_sqlite


class OldClock(SystemClock):
    """A machine whose clock is a year behind."""

    def now_ms(self) -> int:
        return super().now_ms() - 365 * 24 * 3600 * 1000


async def findings(settings: Settings, clock: SystemClock | None = None) -> dict[str, Finding]:
    found = [finding async for finding in check_stores(settings, clock or SystemClock(), SystemEntropy())]
    return {finding.check: finding for finding in found}


def objects(settings: Settings) -> list[Path]:
    """The files that are objects, and not the store's own."""
    root = Path(settings.data, "objects")
    return sorted(path for path in root.rglob("*") if path.is_file() and "~" not in str(path.relative_to(root)))


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    """Of a log with one topic in it."""
    async with catena.open(tmp_path / "log") as log:
        await log.create_topic("t", 2)
        await log.append("t", "value")
    return Settings(data=str(tmp_path / "log"))


async def test_a_sound_log(settings: Settings) -> None:
    found = await findings(settings)
    assert {check: finding.status for check, finding in found.items()} == dict.fromkeys(
        ["object store", "meta store", "clock", "cluster", "history", "topics"], "ok"
    )
    assert found["topics"].found == "1 topic with 2 partitions; oldest and newest record of each can be read"
    assert found["meta store"].found.startswith("compares and sets in groups")
    assert found["history"].found.startswith("incarnation 1 (")


async def test_nothing_is_left_behind(settings: Settings) -> None:
    before = objects(settings)
    await findings(settings)
    assert objects(settings) == before
    meta = SqliteMeta(Path(settings.data, "meta.db"), SystemClock(), SystemEntropy())
    assert await meta.scan(keys.DOCTOR, keys.after(keys.DOCTOR)) == []
    await meta.close()


async def test_empty_stores() -> None:
    found = await findings(Settings(meta="memory:", objects="memory:"))
    assert list(found) == ["object store", "meta store", "clock", "cluster"]
    assert "empty" in found["cluster"].found


async def test_objects_and_meta_that_do_not_belong_together(settings: Settings, tmp_path: Path) -> None:
    async with catena.open(tmp_path / "other") as other:
        await other.create_topic("t")
    mixed = await findings(Settings(data=settings.data, objects=f"folder:{tmp_path / 'other' / 'objects'}"))
    assert mixed["cluster"].status == "fail"
    assert "topics" not in mixed
    lost = await findings(Settings(data=settings.data, objects=f"folder:{tmp_path / 'empty'}"))
    assert lost["cluster"].found == "the object store is empty, and the other one is not"


async def test_a_meta_store_that_is_older_than_the_objects(settings: Settings, tmp_path: Path) -> None:
    database = Path(settings.data, "meta.db")
    copy_sqlite(database, tmp_path / "backup")
    async with catena.open(settings.data) as log:
        await log.append("t", "lost")
    copy_sqlite(tmp_path / "backup", database)
    found = await findings(settings)
    assert list(found)[-1] == "history"
    assert found["history"].status == "fail"
    assert re.search(r"its incarnation is 1 \(.+ UTC\), that of the object store 2 \(", found["history"].found)
    assert "`catena doctor --accept-older-meta`" in found["history"].advice


async def test_a_blob_that_is_gone(settings: Settings) -> None:
    for path in objects(settings):
        if path.parent.name == "wal-shared":
            path.unlink()
    found = (await findings(settings))["topics"]
    assert (found.status, "does not exist" in found.found) == ("fail", True)
    assert "backup" in found.advice


async def test_a_store_that_is_down(settings: Settings) -> None:
    found = await findings(Settings(data=settings.data, meta="postgres://u@127.0.0.1:1/d"))
    assert list(found) == ["object store", "meta store"]
    assert found["meta store"].status == "fail"


async def test_a_clock_that_is_behind(settings: Settings) -> None:
    found = (await findings(settings, OldClock()))["clock"]
    assert (found.status, "before the log was made" in found.found) == ("fail", True)


def test_settings() -> None:
    def refuse() -> Settings:
        raise ConfigError("no such setting")

    assert check_settings(refuse)[0].status == "fail"
    finding, _ = check_settings(lambda: Settings(meta="postgres://user:secret@host/db"))
    assert "meta in postgres://host/db" in finding.found


def test_the_data_folder(tmp_path: Path) -> None:
    assert check_python().status == "ok"
    assert check_data_folder(Settings(meta="memory:", objects="memory:")) is None
    new = check_data_folder(Settings(data=str(tmp_path / "new")))
    assert new is not None
    assert (new.status, "`catena topic create NAME`" in new.advice) == ("warn", True)
    (tmp_path / "file").touch()
    blocked = check_data_folder(Settings(data=str(tmp_path / "file" / "log")))
    assert blocked is not None
    assert (blocked.status, blocked.found) == ("fail", f"{tmp_path / 'file'} is a file")
