"""A node lives before it is ready, and after."""

from __future__ import annotations

import json

import pytest

from catena.http.base import HttpRequest
from catena.http.health import Health, NodeState, Status
from tests.meta.manual_clock import ManualClock


def address() -> tuple[str, int]:
    return "h", 80


async def test_health_says_who_it_is_and_for_how_long() -> None:
    clock = ManualClock()
    health = Health(clock, "1.2.3", lambda: NodeState("ready", 7, "c1"), address)
    started_at_ms = clock.now_ms()
    clock.pause(1.5)
    response = await health.health(HttpRequest("GET", "/health"))
    assert response.status == 200
    assert json.loads(response.body) == {
        "status": "ok",
        "broker_id": "7",
        "host": "h",
        "port": 80,
        "started_at_ms": started_at_ms,
        "state": "ready",
        "node_id": 7,
        "cluster_id": "c1",
        "version": "1.2.3",
        "uptime_s": 1.5,
    }


@pytest.mark.parametrize(
    ("status", "code"),
    [("starting", 503), ("ready", 200), ("unlisted", 503), ("read-only", 503), ("draining", 503)],
)
async def test_only_a_node_that_serves_is_ready(status: Status, code: int) -> None:
    health = Health(ManualClock(), "1.2.3", lambda: NodeState(status), address)
    ready = await health.ready(HttpRequest("GET", "/ready"))
    assert (ready.status, json.loads(ready.body)["state"]) == (code, status)
    alive = await health.health(HttpRequest("GET", "/health"))
    assert (alive.status, json.loads(alive.body)["status"], json.loads(alive.body)["state"]) == (200, "ok", status)


async def test_a_reason_is_told_where_there_is_one() -> None:
    health = Health(ManualClock(), "1.2.3", lambda: NodeState("read-only", 7, "c1", "it was set back"), address)
    for response in (
        await health.ready(HttpRequest("GET", "/ready")),
        await health.health(HttpRequest("GET", "/health")),
    ):
        assert json.loads(response.body)["reason"] == "it was set back"


def test_both_have_a_route() -> None:
    assert set(Health(ManualClock(), "", lambda: NodeState("ready"), address).routes) == {"/health", "/ready"}
