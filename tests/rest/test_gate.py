"""Who is let in, and how often."""

from __future__ import annotations

import json

import pytest

from catena.http.base import HttpRequest, HttpResponse, json_response
from catena.rest.bodies import InvalidBody
from catena.rest.gate import Gate, Rate
from tests.meta.manual_clock import ManualClock
from tests.rest.conftest import Api, serving

TOKEN = "a token that nobody guesses"
ASK = HttpRequest("POST", "/it")
KNOWN = ASK._replace(headers=((b"authorization", b"Bearer " + TOKEN.encode()),))


async def handler(_request: HttpRequest) -> HttpResponse:
    return json_response({})


async def picky(_request: HttpRequest) -> HttpResponse:
    raise InvalidBody("that is nothing", "a[0]")


def gate(token: str = "", per_s: int = 0, roles: tuple[str, ...] = ("write",)) -> Gate:
    return Gate(token, per_s, roles, ManualClock())


async def test_without_a_token_everybody_is() -> None:
    assert (await gate().guarded(handler)(ASK)).status == 200


async def test_with_a_token_those_who_send_it() -> None:
    guarded = gate(TOKEN).guarded(handler)
    assert (await guarded(KNOWN)).status == 200
    refused = await guarded(ASK)
    assert (refused.status, refused.headers) == (401, (("www-authenticate", "Bearer"),))
    assert TOKEN.encode() not in refused.body


async def test_a_node_says_what_it_does_not_do() -> None:
    guarded = gate(roles=("read",)).guarded(handler, "write")
    refused = await guarded(ASK)
    assert refused.status == 404
    message = "this node does not write, its roles are: read; ask one that does"
    assert json.loads(refused.body) == {"message": message}
    assert (await gate(roles=("read",)).guarded(handler, "read")(ASK)).status == 200


async def test_what_is_wrong_is_said() -> None:
    refused = await gate().guarded(picky)(ASK)
    assert (refused.status, json.loads(refused.body)) == (400, {"message": "a[0]: that is nothing", "at": "a[0]"})


async def test_too_often() -> None:
    guarded = gate(per_s=2).guarded(handler)
    assert [(await guarded(ASK)).status for _ in range(3)] == [200, 200, 429]
    assert (await guarded(ASK)).headers == (("retry-after", "1"),)


async def test_who_is_not_known_takes_nothing_from_those_who_are() -> None:
    guarded = gate(TOKEN, per_s=1).guarded(handler)
    assert (await guarded(ASK)).status == 401
    assert (await guarded(KNOWN)).status == 200


def test_the_rate_comes_back_with_time() -> None:
    clock = ManualClock()
    rate = Rate(10, clock)
    assert [rate.take() for _ in range(10)] == [0.0] * 10
    assert rate.take() == pytest.approx(0.1)
    clock.pause(0.1)
    assert rate.take() == 0.0
    assert rate.take() > 0
    clock.pause(100.0)
    assert [rate.take() > 0 for _ in range(11)] == [False] * 10 + [True], "not more than a second's worth"


def test_no_rate_is_any_rate() -> None:
    rate = Rate(0, ManualClock())
    assert not any(rate.take() for _ in range(10_000))


async def test_on_a_node() -> None:
    async with serving(token=TOKEN) as api:
        assert (await api.produce("a")).status == 200
        stranger = Api(api.node)
        for method, path in (("POST", "/produce"), ("POST", "/consume"), ("POST", "/fence"), ("POST", "/unfence")):
            assert (await stranger.ask(method, path, b"{}")).status == 401
        assert (await stranger.ask("GET", "/state?topic=t&partition=0")).status == 401
        for path in ("/health", "/ready", "/openapi.json", "/docs"):
            assert (await stranger.ask("GET", path)).status == 200


@pytest.mark.parametrize(
    ("role", "does", "does_not"), [("write", "/produce", "/consume"), ("read", "/consume", "/produce")]
)
async def test_a_node_does_what_its_roles_say(role: str, does: str, does_not: str) -> None:
    async with serving(node={"roles": [role]}) as api:
        assert (await api.ask("POST", does, b"{}")).status == 400
        refused = await api.ask("POST", does_not, b"{}")
        assert (refused.status, role in refused.body["message"]) == (404, True)
        assert (await api.post("/fence", {"topic": "t", "partition": 0})).body["error_type"] == "UnknownTopic"


async def test_a_node_that_is_asked_too_often_still_says_that_it_lives() -> None:
    async with serving(http={"max_requests_per_s": 1}) as api:
        statuses = [(await api.ask("POST", "/produce", b"{}")).status for _ in range(5)]
        assert statuses[0] == 400
        assert 429 in statuses
        assert (await api.ask("GET", "/health")).status == 200
