"""A node that plans reads for others, asked over HTTP: who may ask, what is told, and what a link opens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from catena.config import HttpSettings, load
from catena.http.base import HttpRequest, HttpResponse
from catena.objects.base import ObjectStore
from catena.runtime import SystemClock
from catena.source import access, links
from catena.source.access import ReadAccess
from tests.source.world import World, fill, open_world, tier

TOKEN = "a token that nobody guesses"
VALID_MS = 60_000
HEADERS = ((b"authorization", b"Bearer " + TOKEN.encode()),)
BATCH = {"is_stream": False, "options": {"subscribe": "orders"}, "ask": {"type": "batch"}}


class Door(NamedTuple):
    world: World
    access: ReadAccess

    async def ask(self, question: Any, headers: tuple[tuple[bytes, bytes], ...] = HEADERS) -> tuple[int, Any]:
        request = HttpRequest("POST", "/v1/read/plan", headers=headers, body=json.dumps(question).encode())
        response = await self.access.plan(request)
        return response.status, json.loads(response.body)

    async def read(self, query: str, byte_range: str | None = "bytes=0-9") -> HttpResponse:
        headers = () if byte_range is None else ((b"range", byte_range.encode()),)
        return await self.access.read_object(HttpRequest("GET", links.PATH, query, headers))


def opened(world: World, objects: ObjectStore, token: str = TOKEN) -> ReadAccess:
    return ReadAccess(world.node, objects, None, HttpSettings(token=token, links_valid_ms=VALID_MS), SystemClock())


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    await fill(tmp_path, 2)
    await tier(tmp_path)
    await fill(tmp_path, 2, start=50)
    async with open_world(tmp_path) as world:
        yield Door(world, opened(world, world.objects))


async def test_a_plan_comes_with_a_link_to_each_of_its_objects(door: Door) -> None:
    status, answer = await door.ask(BATCH)
    assert status == 200
    keys = {extent["key"] for split in answer["splits"] for extent in split["extents"]}
    assert answer["links"].keys() == keys
    assert {split["partition"] for split in answer["splits"]} == {0, 1}
    for key, link in answer["links"].items():
        path, _, query = link.partition("?")
        assert path == links.PATH
        whole = (await door.world.objects.get(key)).data
        response = await door.read(query, "bytes=0-")
        assert (response.status, response.body) == (206, whole)
        assert response.headers == (("content-range", f"bytes 0-{len(whole) - 1}/{len(whole)}"),)


@pytest.mark.parametrize(
    "headers", [(), ((b"authorization", b"Bearer wrong"),), ((b"authorization", TOKEN.encode()),)], ids=str
)
async def test_without_the_token_nothing_is_told(door: Door, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    status, answer = await door.ask(BATCH, headers)
    assert (status, set(answer)) == (401, {"message"})


async def test_a_node_without_a_token_tells_nobody_anything(door: Door) -> None:
    closed = Door(door.world, opened(door.world, door.world.objects, token=""))
    status, answer = await closed.ask(BATCH, ((b"authorization", b"Bearer "),))
    assert (status, answer["message"]) == (
        403,
        "this node plans no reads for others: give it a token by the setting http.token",
    )
    query = links.link(links.secret_of(""), "llog/cluster", SystemClock().now_ms() + 1000).partition("?")[2]
    assert (await closed.read(query)).status == 403


@pytest.mark.parametrize(
    ("question", "status", "error", "words"),
    [
        ({}, 400, "Rejected", "this is no question"),
        ({**BATCH, "more": 1}, 400, "Rejected", "this is no question"),
        ({**BATCH, "options": {"subscribe": "none"}}, 400, "UnknownTopic", "no topic 'none'"),
        ({**BATCH, "options": {"subscribes": "a"}}, 400, "ConfigError", "was subscribe meant?"),
        (
            {**BATCH, "options": {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 999, "1": 0}}'}},
            409,
            "DataLoss",
            "999",
        ),
    ],
    ids=["nothing", "more", "topic", "option", "loss"],
)
async def test_what_can_not_be_planned(door: Door, question: Any, status: int, error: str, words: str) -> None:
    told, answer = await door.ask(question)
    assert (told, answer["error"]) == (status, error)
    assert words in answer["message"]


async def test_losses_that_are_no_errors_are_told(door: Door) -> None:
    options = {"subscribe": "orders", "failOnDataLoss": "false", "startingOffsets": '{"orders": {"0": 999, "1": 0}}'}
    status, answer = await door.ask({**BATCH, "options": options})
    assert status == 200
    assert any("999" in warning for warning in answer["warnings"])


async def test_streams(door: Door) -> None:
    question: dict[str, Any] = {"is_stream": True, "options": {"subscribe": "orders", "startingOffsets": "earliest"}}
    _, first = await door.ask({**question, "ask": {"type": "initial"}})
    _, tails = await door.ask({**question, "ask": {"type": "tails"}})
    assert tails["offsets"]["topics"]["orders"]["partitions"] == {"0": 100, "1": 100}
    ask = {"type": "latest", "start": first["offsets"], "max_offsets": 10}
    _, latest = await door.ask({**question, "ask": ask})
    assert latest["offsets"]["topics"]["orders"]["partitions"] == {"0": 5, "1": 5}
    assert latest["tails"] == tails["offsets"]
    _, plan = await door.ask(
        {**question, "ask": {"type": "stream", "start": first["offsets"], "end": latest["offsets"]}}
    )
    assert [(split["start"], split["end"]) for split in plan["splits"]] == [(0, 5), (0, 5)]


async def test_other_logs_of_a_node_stay_open(door: Door) -> None:
    await door.world.log.create_topic("other", 1)
    record = await door.world.node.topics.get("other")
    kept = door.world.node.open_log(record, 0)
    await door.ask(BATCH)
    assert door.world.node.open_log(record, 0) is kept


async def test_a_plan_has_a_bound(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_EXTENTS", 1)
    status, answer = await door.ask(BATCH)
    assert (status, answer["error"]) == (400, "Rejected")
    assert "a node hands out 20000 and 1 at a time: read less at once" in answer["message"]


async def test_tasks_are_counted_before_they_are_made(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_SPLITS", 50)
    for option in ({"minPartitions": "1000000000000"}, {"maxRecordsPerPartition": "3"}):
        status, answer = await door.ask({**BATCH, "options": {"subscribe": "orders", **option}})
        assert (status, answer["error"]) == (400, "Rejected")
        assert "ask for fewer, or read less at once" in answer["message"]
    status, _ = await door.ask({**BATCH, "options": {"subscribe": "orders", "minPartitions": "50"}})
    assert status == 200


async def test_patterns_take_no_time(door: Door) -> None:
    await door.world.log.create_topic("a" * 60, 1)
    asked = {"subscribePattern": "(a+)+b|orders"}
    assert (await door.ask({**BATCH, "options": asked}))[0] == 200
    status, answer = await door.ask({**BATCH, "options": {"subscribePattern": "(?=a)b"}})
    assert (status, answer["error"]) == (400, "ConfigError")


async def test_ranges_of_an_object(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    await door.world.objects.put("llog/it", [b"0123456789"])

    def query(key: str = "llog/it", valid_ms: int = VALID_MS) -> str:
        until_ms = SystemClock().now_ms() + valid_ms
        return links.link(links.secret_of(TOKEN), key, until_ms).partition("?")[2]

    assert (await door.read(query(), "bytes=3-5")).body == b"345"
    assert (await door.read(query(), "bytes=8-20")).headers == (("content-range", "bytes 8-9/10"),)
    monkeypatch.setattr(access, "MAX_RANGE_BYTES", 4)
    assert (await door.read(query(), "bytes=1-")).body == b"1234"
    assert (await door.read(query(), "bytes=10-20")).status == 416
    assert (await door.read(query(), "bytes=5-4")).status == 416
    for no_range in (None, "bytes=-5", "bytes=a-b", "lines=1-2"):
        assert (await door.read(query(), no_range)).status == 400
    assert (await door.read(query("llog/none"))).status == 404
    assert (await door.read(query("../../etc/passwd"))).status == 404
    assert (await door.read(query(valid_ms=-1))).status == 403
    assert (await door.read(query().replace("llog", "lloh"))).status == 403


def test_a_token_is_long_enough() -> None:
    assert load(http={"token": TOKEN}).http.token == TOKEN
    for token in ("short", "x" * 300, "with\nlines of sixteen characters", "with a space at its end "):
        with pytest.raises(Exception, match=r"http\.token has 16 to 256 characters"):
            load(http={"token": token})
