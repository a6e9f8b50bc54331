"""Fence, unfence, state: what they do to a log, and what they say of it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from catena.errors import OutcomeUnknown, StoreUnavailable
from catena.http.base import HttpRequest
from catena.rest.fencing import Fencing
from catena.testing.faults import Fail
from catena.virtual_log import chain as chains
from tests.broker.world import World
from tests.rest.conftest import Api

LOG = {"topic": "t", "partition": 0}


async def state(api: Api) -> Any:
    answer = await api.ask("GET", "/state?topic=t&partition=0")
    assert answer.status == 200
    return answer.body


async def test_a_log_that_takes_appends_is_open(api: Api) -> None:
    await api.produce("a", "b")
    assert await state(api) == {
        **LOG,
        "state": "OPEN",
        "start_offset": 0,
        "tail": 2,
        "boundary": 0,
        "epoch": 1,
        "links": [{"kind": "diskless", "epoch": 1, "base": 0, "end": None}],
    }


async def test_fenced_and_unfenced(api: Api) -> None:
    await api.produce("a")
    first = await api.post("/fence", LOG)
    again = await api.post("/fence", LOG)
    for fenced in (first, again):
        assert (fenced.status, fenced.body["state"], fenced.body["tail"]) == (200, "FENCED", 1)
        assert fenced.body["links"] == [{"kind": "diskless", "epoch": 1, "base": 0, "end": 1}]
    assert await state(api) == first.body
    assert (await api.produce("b")).body["results"][0]["error_type"] == "LogSealed"
    assert (await api.read(0))["records"] == ["a"], "what is there can be read"
    for _ in range(2):
        opened = await api.post("/unfence", LOG)
        assert (opened.status, opened.body["state"], len(opened.body["links"])) == (200, "OPEN", 2)
    assert (await api.produce("b")).body["results"][0]["start_offset"] == 1


async def test_a_fence_that_was_left_half_done_is_lifted_all_the_same(api: Api) -> None:
    await api.produce("a")
    log = await api.node.node.log("t", 0)
    await log.store.change(log.tp, log.kind, lambda chain: chains.intend(chain, "left", None))
    opened = await api.post("/unfence", LOG)
    assert (opened.status, opened.body["state"]) == (200, "OPEN")
    assert (await api.produce("b")).status == 200


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [("none", 0, "UnknownTopic"), ("t", 9, "UnknownPartition"), ("a b", 0, "InvalidTopic")],
)
async def test_what_is_not_there(api: Api, topic: str, partition: int, error: str) -> None:
    for path in ("/fence", "/unfence"):
        answer = await api.post(path, {"topic": topic, "partition": partition})
        assert (answer.status, answer.body["error_type"]) == (404, error)
    answer = await api.ask("GET", f"/state?topic={topic.replace(' ', '%20')}&partition={partition}")
    assert (answer.status, answer.body["error_type"]) == (404, error)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?topic=t",
        "?partition=0",
        "?topic=t&partition=0&more=1",
        "?topic=t&partition=0&partition=1",
        "?topic=t&partition=-1",
        "?topic=t&partition=x",
        "?topic=t&partition=",
        "?topic=t&partition=%D9%A3",
        "?topic=&partition=0",
        f"?topic=t&partition={2**31}",
        "?topic=%ff&partition=0",
        "?" + "a=b&" * 100,
    ],
)
async def test_a_log_has_to_be_named(api: Api, query: str) -> None:
    assert (await api.ask("GET", f"/state{query}")).status == 400


@pytest.mark.parametrize("body", [b"", b"{}", b'{"topic": "t"}', b'{"topic": "t", "partition": 0, "more": 1}'])
async def test_so_has_one_to_be_fenced(api: Api, body: bytes) -> None:
    assert (await api.ask("POST", "/fence", body)).status == 400


@pytest.mark.parametrize(
    ("error", "status"), [(StoreUnavailable("down"), 503), (OutcomeUnknown("lost"), 409)], ids=["away", "unknown"]
)
async def test_trouble_has_a_name(tmp_path: Path, error: Any, status: int) -> None:
    async with AsyncExitStack() as opened:
        node = await World("memory", tmp_path, opened).node(1)
        await node.node.topics.create("t", 1)
        node.faults.at("get chain", Fail(error))
        response = await Fencing(node.view, node.node.open_log).fence(
            HttpRequest("POST", "/fence", body=b'{"topic": "t", "partition": 0}')
        )
    assert response.status == status
    assert type(error).__name__.encode() in response.body
    assert (("retry-after", "1") in response.headers) == (status == 503)
