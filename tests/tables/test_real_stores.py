"""Tables on S3, with the meta store and the catalog in PostgreSQL: built, tidied and read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from catena.config import Settings
from catena.embedded import open_log
from catena.runtime import Disk
from tests.pipeline.real_stores import POSTGRES, make_settings
from tests.tables.world import START_MS, World

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_from_the_first_record_to_the_last(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "iceberg":
        pytest.importorskip("psycopg2")
    asyncio.run(build_and_read(make_settings(POSTGRES, tmp_path, request, monkeypatch), kind))


async def build_and_read(settings: Settings, kind: str) -> None:
    disk = Disk(2)
    async with open_log(settings) as log:
        world = World(log, settings, disk)
        await world.create(
            2, format=kind, value_format="json", value_schema='{"properties": {"n": {"type": "integer"}}}'
        )
        for number in range(6):
            await world.append([f'{{"n": {number}}}', "bad"], number % 2)
            report = await world.build()
            assert (report.rows, report.dead_letters, report.error) == (1, 1, "")
        reports = await world.keep_up(small_files=3, grace_ms=1, keep_states_ms=0)
        assert [(report.compacted, report.error) for report in reports] == [(6, ""), (6, "")]
        assert [report.error for report in await world.keep_up(small_files=3)] == ["", ""]
        await world.append(['{"n": 6}'], at_ms=START_MS)
        assert (await world.build()).rows == 1
        assert sorted((await world.rows())["n"].to_pylist()) == list(range(7))
        assert len(await world.offsets(letters=True)) == 6
        await world.close()
    disk.close()
