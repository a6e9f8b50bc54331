"""A stream on real Spark, a node beside it, and a real client that finds how far the stream is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.conftest import running
from tests.clients.nodes import Cluster
from tests.source.world import fill
from tests.sparks import LOCAL, Sparks

GROUP = "a stream"
END_MAX_S = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from running(Cluster(1, tmp_path, {}))


@pytest.mark.long
def test_the_offsets_of_a_group_follow_the_stream(sparks: Sparks, cluster: Cluster, tmp_path: Path) -> None:
    """Spark tells of a batch when it plans the next: at the end it has not told of the last one."""
    asyncio.run(fill(tmp_path / "data", 2, 4))
    query = (
        sparks.get(LOCAL)
        .readStream.format("catena")
        .options(data=str(tmp_path / "data"), subscribe="orders", startingOffsets="earliest", commitGroup=GROUP)
        .option("maxOffsetsPerTrigger", 10)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(END_MAX_S)
    finally:
        query.stop()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition("orders", number) for number in range(2)], timeout=20)
    finally:
        consumer.close()
    assert [each.offset for each in found] == [15, 15]
