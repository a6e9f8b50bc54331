"""Two drivers in processes of their own race, and are killed with SIGKILL at random moments, beside a writer."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

from tests.sparks import ROOT
from tests.tables.world import TOPIC, Row, World, opened_world

pytestmark = pytest.mark.long

KILLS = 12
DRIVERS = 2


class Drivers:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        command = (sys.executable, "-m", "tests.tables.mortal", str(self._folder))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        self._running.append(process)

    async def kill_first(self) -> None:
        process = self._running.pop(0)
        assert process.returncode is None, (await process.communicate())[1].decode()
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
async def test_each_record_is_there_once(tmp_path: Path, kind: str) -> None:
    chance = random.Random(5)
    async with opened_world(tmp_path) as world:
        await world.create(
            2, format=kind, value_format="json", value_schema='{"properties": {"n": {"type": "integer"}}}'
        )
        drivers = Drivers(tmp_path)
        for _ in range(DRIVERS):
            await drivers.start()
        for _ in range(KILLS):
            await write(world, chance.randrange(1, 40))
            await drivers.kill_first()
            await drivers.start()
        for _ in range(DRIVERS):
            await drivers.kill_first()
        assert (await world.build()).error == ""
        tails = [await world.log.tail(TOPIC, partition) for partition in range(2)]
        everything = [Row(partition, offset) for partition in range(2) for offset in range(tails[partition])]
        rows, letters = await world.offsets(), await world.offsets(letters=True)
        assert len(rows) > 20
        assert letters == [row for row in everything if row.offset % 5 == 4]
        assert rows == [row for row in everything if row.offset % 5 != 4]


async def write(world: World, times: int) -> None:
    """Every fifth record is bad."""
    for number in range(times):
        await world.append([f'{{"n": {number}}}'] * 4 + ["bad"], number % 2)
