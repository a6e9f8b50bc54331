"""POST /consume, from the log to the wire: records, where to go on, waiting, bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from catena.broker.long_polls import LongPolls
from catena.config import Settings
from catena.counting import Sent
from catena.errors import StoreUnavailable
from catena.formats.compression import Compression
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.http.base import HttpRequest
from catena.loglets.base import Entry
from catena.meta.memory import MemoryMeta
from catena.node import Node
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.rest import consume
from catena.rest.consume import LEAST_BYTES, Consume
from catena.rest.hot import HotRecords
from catena.runtime import SystemClock, SystemEntropy, Tasks
from catena.testing.faults import Fail, Faults, FaultyMeta
from catena.virtual_log.topic_view import TopicView
from tests.rest.conftest import Api

LONG_MS = 60_000


async def test_an_answer(api: Api) -> None:
    await api.produce("a", {"base64": "/w=="}, "ü")
    answer = await api.consume(1)
    assert answer.status == 200
    assert answer.body == {
        "results": [
            {
                "topic": "t",
                "partition": 0,
                "ok": True,
                "start_offset": 1,
                "next_offset": 3,
                "high_watermark": 3,
                "log_start_offset": 0,
                "count": 2,
                "records": [{"base64": "/w=="}, "ü"],
            }
        ],
        "success_count": 1,
        "error_count": 0,
    }


async def test_at_the_tail_there_is_nothing(api: Api) -> None:
    await api.produce("a")
    result = await api.read(1)
    assert (result["records"], result["start_offset"], result["next_offset"], result["high_watermark"]) == ([], 1, 1, 1)


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("count", [3, 500])
async def test_what_kafka_clients_wrote(api: Api, compression: Compression, count: int) -> None:
    records = [(b"k", b"%d" % number, (("h", b"x"),), number) for number in range(count)]
    await api.append(*records, compression=compression)
    result = await api.read(1)
    assert result["records"] == [str(number) for number in range(1, count)]
    detailed = await api.read(2, details=True)
    assert detailed["records"][0] == {
        "offset": 2,
        "timestamp": 2,
        "key": "k",
        "value": "2",
        "headers": [{"name": "h", "value": "x"}],
    }


async def test_bounds_are_kept_and_the_reader_gets_on(api: Api) -> None:
    values = [f"{number:0100}" for number in range(50)]
    await api.produce(*values)
    found, offset, answers = [], 0, 0
    while offset < 50:
        result = await api.read(offset, max_bytes=1_000)
        assert 0 < len(result["records"]) <= 10
        found += result["records"]
        offset, answers = result["next_offset"], answers + 1
    assert (found, answers) == (values, 5)
    assert len((await api.read(0, partition_max_bytes=250))["records"]) == 2
    assert len((await api.read(0, partition_max_bytes=0))["records"]) == 1, "else nobody gets past it"
    assert len((await api.read(0, max_bytes=0))["records"]) == 1


async def test_of_many_partitions_the_first_gets_one_at_least(api: Api) -> None:
    for number in (0, 1):
        await api.produce("a" * 100, "b" * 100, partition=number)
    parts = [{"topic": "t", "partition": number, "fetch_offset": 0} for number in (0, 1)]
    answer = await api.post("/consume", {"topic_partitions": parts, "max_bytes": 150})
    assert [result["count"] for result in answer.body["results"]] == [1, 0]
    assert [result["next_offset"] for result in answer.body["results"]] == [1, 0]
    answer = await api.post("/consume", {"topic_partitions": parts, "max_bytes": 1_000})
    assert [result["count"] for result in answer.body["results"]] == [2, 2]


async def test_records_without_a_byte_are_bounded_in_all_partitions_together(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "MAX_RECORDS", 20)
    await api.produce(*[""] * 15)
    parts = [{"topic": "t", "partition": 0, "fetch_offset": offset} for offset in (0, 3, 5, 7)]
    for details in (False, True):
        answer = await api.post("/consume", {"topic_partitions": parts, "details": details})
        assert [result["count"] for result in answer.body["results"]] == [15, 12, 0, 0]
        assert [result["next_offset"] for result in answer.body["results"]] == [15, 15, 5, 7]


@pytest.mark.parametrize(
    ("asked", "error_type", "more"),
    [
        ({"fetch_offset": 5}, "OffsetOutOfRange", {"high_watermark": 1, "log_start_offset": 0}),
        ({"topic": "none"}, "UnknownTopic", {}),
        ({"topic": "no name"}, "InvalidTopic", {}),
        ({"partition": 2}, "UnknownPartition", {}),
    ],
    ids=str,
)
async def test_what_can_not_be_read(api: Api, asked: dict[str, Any], error_type: str, more: dict[str, int]) -> None:
    await api.produce("a")
    good = {"topic": "t", "partition": 0, "fetch_offset": 0}
    answer = await api.post("/consume", {"topic_partitions": [good, {**good, **asked}], "max_wait_ms": LONG_MS})
    assert (answer.status, answer.body["success_count"], answer.body["error_count"]) == (409, 1, 1)
    first, second = answer.body["results"]
    assert first["records"] == ["a"]
    assert (second["ok"], second["error_type"], bool(second["error"])) == (False, error_type, True)
    assert {name: second.get(name) for name in more} == more


class Reader:
    """A node of its own on stores that others write to, and its handler."""

    def __init__(self, node: Node, view: TopicView, max_waiting: int = 10, room: int = 1 << 30) -> None:
        self.node, self.view = node, view
        self.tasks = Tasks("reader")
        self.polls = LongPolls(node.clock, self.tasks)
        self.sent = Sent()
        self.client_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hot = HotRecords(0)
        self._consume = Consume(view, node.open_log, self.polls, self.sent, hot, node.clock, lambda: room, max_waiting)

    async def consume(self, *offsets: int, **more: Any) -> list[Any]:
        parts = [{"topic": "t", "partition": number, "fetch_offset": at} for number, at in enumerate(offsets)]
        body = json.dumps({"topic_partitions": parts, **more}).encode()
        response = await self._consume.consume(HttpRequest("POST", "/consume", body=body, ended=self.client_ended))
        results: list[Any] = json.loads(response.body)["results"]
        return results

    async def starts_to_wait(self, *offsets: int, **more: Any) -> asyncio.Task[list[Any]]:
        waits = asyncio.ensure_future(self.consume(*offsets, max_wait_ms=LONG_MS, **more))
        for _ in range(10_000):
            if len(self.polls):
                return waits
            await asyncio.sleep(0)
        raise AssertionError("it does not wait")

    async def append(self, value: bytes, partition: int = 0) -> None:
        data = build_batch([(None, value, (), 1)])
        await (await self.node.log("t", partition)).append(Entry(parse_header(data), data))


class Stores:
    """Shared by nodes; what is asked of the object store is counted, and the meta store can fail."""

    def __init__(self, opened: AsyncExitStack) -> None:
        self.clock = SystemClock()
        self.faults = Faults()
        self.objects = CountedObjects(MemoryObjects(self.clock), self.clock)
        self._meta = MemoryMeta(self.clock)
        self._opened = opened

    async def reader(self, **more: Any) -> Reader:
        meta = FaultyMeta(self._meta, self.faults)
        node = await Node.start(Settings(), meta, self.objects, self.clock, SystemEntropy())
        self._opened.push_async_callback(node.close)
        view = TopicView(meta, self.clock)
        await view.start()
        self._opened.push_async_callback(view.close)
        reader = Reader(node, view, **more)
        self._opened.push_async_callback(reader.tasks.close)
        return reader


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with AsyncExitStack() as opened:
        found = Stores(opened)
        await (await found.reader()).node.topics.create("t", 3)
        yield found


async def test_who_asks_for_what_is_not_there_yet_waits(stores: Stores) -> None:
    reader = await stores.reader()
    waits = await reader.starts_to_wait(0, 0)
    await reader.append(b"news", partition=1)
    async with asyncio.timeout(30):
        first, second = await waits
    assert (first["records"], second["records"]) == ([], ["news"])
    assert not len(reader.polls)


async def test_until_its_time_is_over(stores: Stores) -> None:
    (result,) = await (await stores.reader()).consume(0, max_wait_ms=50, min_bytes=10)
    assert (result["records"], result["next_offset"]) == ([], 0)


async def test_less_than_is_wanted_is_waited_with(stores: Stores) -> None:
    reader = await stores.reader()
    await reader.append(b"a")
    waits = await reader.starts_to_wait(0, min_bytes=100)
    await reader.append(b"b" * 100)
    async with asyncio.timeout(30):
        (result,) = await waits
    assert result["count"] == 2
    assert (reader.sent.requests, reader.sent.records, reader.sent.empty) == (1, 2, 0)


async def test_the_end_of_the_node_ends_the_wait(stores: Stores) -> None:
    reader = await stores.reader()
    waits = await reader.starts_to_wait(0)
    reader.polls.end()
    async with asyncio.timeout(30):
        assert [result["records"] for result in await waits] == [[]]


async def test_who_goes_away_does_not_wait_on(stores: Stores) -> None:
    """Its place among those who may wait is free at once, not at the end of its time."""
    reader = await stores.reader()
    waits = await reader.starts_to_wait(0)
    reader.client_ended.set_result(None)
    async with asyncio.timeout(30):
        assert [result["records"] for result in await waits] == [[]]
    assert not len(reader.polls)


async def test_one_too_many_does_not_wait(stores: Stores) -> None:
    reader = await stores.reader(max_waiting=1)
    waits = await reader.starts_to_wait(0)
    async with asyncio.timeout(30):
        assert [result["records"] for result in await reader.consume(0, max_wait_ms=LONG_MS)] == [[]]
    assert not waits.done()
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits


async def test_where_clients_do_not_take_their_answers_there_is_less(stores: Stores) -> None:
    reader = await stores.reader(room=0)
    for _ in range(5):
        await reader.append(b"x" * 100_000)
    (result,) = await reader.consume(0)
    assert result["count"] == LEAST_BYTES // 100_000


async def test_a_store_that_is_away_has_a_name(stores: Stores) -> None:
    reader = await stores.reader()
    stores.faults.at("get chain", Fail(StoreUnavailable("down")))
    (result,) = await reader.consume(0)
    assert (result["error_type"], result["error"]) == ("StoreUnavailable", "down")
    assert (await reader.consume(0))[0]["ok"]


async def test_a_blob_that_partitions_share_is_got_once(stores: Stores) -> None:
    """Written in one turn, the batches of all three lie in one blob; another node has nothing of it in memory."""
    writer, reader = await stores.reader(), await stores.reader()
    puts = stores.objects.snapshot()["put"].requests
    await asyncio.gather(*(writer.append(b"%d" % number, partition=number) for number in range(3)))
    assert stores.objects.snapshot()["put"].requests == puts + 1
    for _ in range(2):  # the second time it is kept
        results = await reader.consume(0, 0, 0)
        assert [result["records"] for result in results] == [["0"], ["1"], ["2"]]
        counts = stores.objects.snapshot()
        assert (counts["range_get"].requests, counts["range_get"].bytes < 1_000) == (1, True)
