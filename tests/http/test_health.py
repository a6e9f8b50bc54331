"""A node lives before it is ready, and after."""

from __future__ import annotations

import json

import pytest

from catena.http.base import HttpRequest
from catena.http.health import Health, NodeState, Status
from tests.meta.manual_clock import ManualClock


async def test_health_says_who_it_is_and_for_how_long() -> None:
    clock = ManualClock()
    health = Health(clock, "1.2.3", lambda: NodeState("ready", 7, "c1"))
    clock.pause(1.5)
    response = await health.health(HttpRequest("GET", "/health"))
    assert response.status == 200
    assert json.loads(response.body) == {
        "status": "ready",
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
    health = Health(ManualClock(), "1.2.3", lambda: NodeState(status))
    ready = await health.ready(HttpRequest("GET", "/ready"))
    assert (ready.status, json.loads(ready.body)["status"]) == (code, status)
    assert (await health.health(HttpRequest("GET", "/health"))).status == 200


async def test_a_reason_is_told_where_there_is_one() -> None:
    health = Health(ManualClock(), "1.2.3", lambda: NodeState("read-only", 7, "c1", "it was set back"))
    for response in (
        await health.ready(HttpRequest("GET", "/ready")),
        await health.health(HttpRequest("GET", "/health")),
    ):
        assert json.loads(response.body)["reason"] == "it was set back"


def test_both_have_a_route() -> None:
    assert set(Health(ManualClock(), "", lambda: NodeState("ready")).routes) == {"/health", "/ready"}
