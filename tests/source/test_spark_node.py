"""Through a node, with a token: the driver has no settings of the stores, and tasks no credentials."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from catena.config import Settings
from catena.embedded import open_log
from tests.clients.nodes import Node
from tests.pipeline.real_stores import POSTGRES, make_settings
from tests.source.world import fill, rows_in, tier
from tests.sparks import LOCAL, Sparks

TOKEN = "a token that nobody guesses"


@contextmanager
def running(folder: Path, **more: str) -> Iterator[str]:
    """The address of a `catena serve` process; its log is in `folder`/data unless settings say otherwise."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CATENA_")}
    node = Node(0, folder, {**ours, "CATENA_HTTP__TOKEN": TOKEN, **more})
    node.launch()
    try:
        node.wait_until_ready()
        yield f"http://{json.loads((folder / '0.001.json').read_text())['http']}"
    finally:
        assert node.end() == 0
    assert TOKEN not in node.log


def load(sparks: Sparks, address: str, **options: Any) -> Any:
    reader = sparks.get(LOCAL).read.format("catena")
    return reader.options(node=address, token=TOKEN, subscribe="orders", **options).load()


def test_batches_and_streams(sparks: Sparks, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "data"))
    asyncio.run(tier(tmp_path / "data"))
    asyncio.run(fill(tmp_path / "data", start=50))
    expected = [(row.partition, row.offset, row.value) for row in asyncio.run(rows_in(tmp_path / "data"))]
    with running(tmp_path) as address:
        frame = load(sparks, address, minPartitions="7").select("partition", "offset", "value")
        assert sorted((row[0], row[1], row[2] and bytes(row[2])) for row in frame.collect()) == sorted(expected)
        with pytest.raises(Exception, match="option token: reads are planned for those who send the token"):
            load(sparks, address).sparkSession.read.format("catena").options(
                node=address, token="another token, as long", subscribe="orders"
            ).load().count()
        assert b"cluster" in urllib.request.urlopen(f"{address}/health").read()
        stream = sparks.get(LOCAL).readStream.format("catena").options(node=address, token=TOKEN, subscribe="orders")
        query = (
            stream.option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 100)
            .load()
            .select("partition", "offset")
            .writeStream.format("memory")
            .queryName("through_a_node")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = sparks.get(LOCAL).sql("select * from through_a_node").collect()
        assert sorted(tuple(row) for row in found) == sorted(row[:2] for row in expected)


async def _fill(settings: Settings) -> None:
    async with open_log(settings) as log:
        await log.create_topic("orders", 2)
        for partition in range(2):
            await log.append_batch("orders", [f"value {n}" for n in range(100)], partition=partition)


@pytest.mark.long
def test_tasks_read_a_bucket_by_presigned_addresses(
    sparks: Sparks, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(POSTGRES, tmp_path, request, monkeypatch)
    asyncio.run(_fill(settings))
    with running(tmp_path, CATENA_META=settings.meta, CATENA_OBJECTS=settings.objects) as address:
        frame = load(sparks, address)
        assert frame.count() == 200
        assert bytes(frame.filter("partition = 1 and offset = 99").first().value) == b"value 99"


def test_the_token_does_not_go_to_tasks() -> None:
    from catena.source.options import parse_batch, parse_stream
    from catena.source.spark.readers import BatchReader, open_stream_reader

    given = {"node": "http://localhost:1", "token": TOKEN, "subscribe": "orders"}
    for reader in (BatchReader(parse_batch(given), ["key"]), open_stream_reader(parse_stream(given), ["key"])):
        assert TOKEN.encode() not in pickle.dumps(reader)
        assert pickle.loads(pickle.dumps(reader))._columns == ["key"]
