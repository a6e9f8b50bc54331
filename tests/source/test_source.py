"""Through Spark Connect the source is registered first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from catena.pipeline.spark.session import open_spark
from catena.source import register
from tests.source.world import fill
from tests.sparks import Sparks


@pytest.mark.long
def test_it_works_through_connect(sparks: Sparks, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    with open_spark(remote=sparks.remote) as session:
        register(session)
        frame = session.read.format("catena").options(data=str(tmp_path), subscribe="orders").load()
        assert frame.count() == 150
        assert frame.filter("partition = 1 and offset < 5").count() == 5
