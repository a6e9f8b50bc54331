"""A stream from topic to topic whose driver is killed again and again, with all of its processes, at random moments."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import catena
from catena.config import Settings
from catena.embedded import open_log
from tests.pipeline.real_stores import POSTGRES, SQLITE, make_settings
from tests.source.world import Row
from tests.sparks import ROOT

PARTITIONS = 2
START_MAX_S = 180
FIRST_PACE_S = 2.0
BATCHES = (0, 1, 1, 2)
"""So many does a driver do before it is killed, in the middle of the next one."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]


@pytest.fixture
def settings(kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return make_settings(kind, tmp_path / "data", request, monkeypatch, deadline_ms=60_000)


class Drivers:
    """One after the other."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._environment = {
            **os.environ,
            "CATENA_DATA": settings.data,
            "CATENA_META": settings.meta_url,
            "CATENA_OBJECTS": settings.objects_url,
            "PYTHONPATH": path,
        }
        self._checkpoint = str(folder / "checkpoint")
        self._log = folder / "drivers.log"

    def start(self, until: str) -> subprocess.Popen[bytes]:
        """Returns once its query has begun."""
        command = [sys.executable, "-m", "tests.source.stream_driver", self._checkpoint, until]
        with self._log.open("ab") as log:
            driver = subprocess.Popen(
                command, env=self._environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"begun\n", self._log.read_text(errors="replace")[-3000:]
        return driver

    def wait_for_batches(self, driver: subprocess.Popen[bytes], count: int) -> float:
        """How long the last of them took; 0 if there is none."""
        assert driver.stdout is not None
        took_s = 0.0
        for _ in range(count):
            began = time.monotonic()
            assert driver.stdout.readline() == b"batch\n", self._log.read_text(errors="replace")[-3000:]
            took_s = time.monotonic() - began
        return took_s

    def kill(self, driver: subprocess.Popen[bytes]) -> None:
        """It and all that it has started."""
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()


async def _fill(settings: Settings, start: int, count: int) -> None:
    async with open_log(settings) as log:
        if start == 0:
            for topic in ("orders", "copy"):
                await log.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            messages = [
                catena.Message(f"value {number}", key=f"key {number}", headers={"n": f"{number}"}, timestamp_ms=number)
                for number in range(start, start + count)
            ]
            await log.append_batch("orders", messages, partition=partition)


async def _rows(settings: Settings, topic: str) -> list[Row]:
    async with open_log(settings) as log:
        return [
            Row(number, each.offset, each.key, each.value, each.timestamp, list(each.headers))
            for number in range(PARTITIONS)
            async for each in log.read(topic, number, "earliest")
        ]


@pytest.mark.parametrize(("kind", "kills"), [(SQLITE, 50), (POSTGRES, 10)])
def test_each_record_is_copied_once(settings: Settings, tmp_path: Path, kills: int, can_spark: None) -> None:
    chance = random.Random(kills)
    drivers = Drivers(settings, tmp_path)
    asyncio.run(_fill(settings, 0, 20))
    pace_s = FIRST_PACE_S
    for number in range(1, kills + 1):
        driver = drivers.start("forever")
        pace_s = drivers.wait_for_batches(driver, chance.choice(BATCHES)) or pace_s
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(pace_s * chance.random())
        drivers.kill(driver)
        asyncio.run(_fill(settings, 20 * number, 20))
        copied = asyncio.run(_rows(settings, "copy"))
        expected = asyncio.run(_rows(settings, "orders"))
        for partition in range(PARTITIONS):
            found = [row for row in copied if row.partition == partition]
            assert found == [row for row in expected if row.partition == partition][: len(found)], f"kill {number}"
    driver = drivers.start("now")
    told, _ = driver.communicate(timeout=START_MAX_S)
    assert told.endswith(b"ended\n")
    assert driver.returncode == 0
    assert asyncio.run(_rows(settings, "copy")) == asyncio.run(_rows(settings, "orders"))
