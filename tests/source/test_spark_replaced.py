"""A query that is planned goes on with the objects that it has planned for, though others have taken their place."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import catena
from catena import jobs
from catena.config import Settings, load
from tests.jobs.topics import inline
from tests.source.test_spark_node import TOKEN, running
from tests.sparks import LOCAL, Sparks

TWO_DAYS_S = 2 * 86_400


async def fill(folder: Path) -> None:
    """In two passes: then there are two segments, and the compaction has what to take the place of."""
    async with catena.open(folder) as log:
        await log.create_topic("orders", 1)
        await log.node.topics.alter_configs("orders", lambda _: {"cleanup.policy": "compact"})
        for number in range(4):
            messages = [catena.Message(f"{number}.{each}", key=f"key {each}") for each in range(10)]
            await log.append_batch("orders", messages)


async def tier(settings: Settings) -> None:
    report = await jobs.tier(settings, force_up_to=jobs.MAX_OFFSET, open_work=inline(settings))
    assert not report.failed


async def compact_and_vacuum(settings: Settings) -> int:
    """How many objects have gone."""
    report = await jobs.compact(settings, open_work=inline(settings))
    assert [(each.outcome, each.records) for each in report.partitions] == [("compacted", 10)]
    return (await jobs.vacuum(settings, open_work=inline(settings))).deleted.objects


def age(folder: Path) -> None:
    """All that is stored was stored long ago: vacuum's grace alone keeps nothing."""
    for path in folder.rglob("llog/**/*"):
        was = path.stat().st_mtime - TWO_DAYS_S
        os.utime(path, (was, was))


@pytest.mark.parametrize("is_by_node", [False, True], ids=["on the stores", "through a node"])
def test_a_planned_query_goes_on(sparks: Sparks, tmp_path: Path, is_by_node: bool) -> None:
    data = tmp_path / "data"
    settings = load(data=str(data))
    asyncio.run(fill(data))
    asyncio.run(tier(settings))
    age(data)

    def frame(**access: Any) -> Any:
        reader = sparks.get(LOCAL).read.format("catena").options(subscribe="orders", **access)
        return reader.load().select("offset", "value")

    def rows(planned: Any) -> list[tuple[int, bytes]]:
        return sorted((row[0], bytes(row[1])) for row in planned.collect())

    def look(**access: Any) -> None:
        planned = frame(**access)
        expected = rows(planned)
        assert len(expected) == 40
        assert asyncio.run(compact_and_vacuum(settings)) > 0, "the blobs, which nobody has planned for"
        assert rows(planned) == expected, "by the same plan"
        assert rows(frame(**access)) == expected[-10:]

    if is_by_node:
        with running(tmp_path) as address:
            look(node=address, token=TOKEN)
    else:
        look(data=str(data))
