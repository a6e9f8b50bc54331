"""Executors of their own read what the driver has planned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.source.world import fill
from tests.sparks import CLUSTER, Sparks


@pytest.mark.long
def test_executors_read_the_log(sparks: Sparks, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    frame = sparks.get(CLUSTER).read.format("catena").options(data=str(tmp_path), subscribe="orders").load()
    assert frame.groupBy("partition").count().orderBy("partition").collect() == [(0, 50), (1, 50), (2, 50)]
