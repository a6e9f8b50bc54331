from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catena.loadtest.hammers.kafka_produce import settings_of
from catena.loadtest.orders import Bounds, OrderBook
from catena.loadtest.routing import make_manifest
from catena.loadtest.run_folder import StackNode, StackState
from catena.loadtest.scenario import Scenario, parse_scenario

STACK = StackState("r", "s", nodes=[StackNode(f"node-{n}", n, f"h:{9000 + n}", f"h:{8000 + n}", None) for n in (0, 1)])


def book(**values: Any) -> tuple[OrderBook, Scenario, dict[tuple[str, int], Bounds]]:
    scenario = parse_scenario({"name": "test", "topics": [{"name": "t", "partitions": 5}], **values}, "test")
    manifest = make_manifest(1, scenario.places, ["node-0", "node-1"], 2, "round_robin")
    tails = {place: Bounds(0, 10 + place[1]) for place in scenario.places}
    return OrderBook(scenario, STACK, manifest, Path("ledgers")), scenario, tails


def test_consumers_share_the_partitions_and_begin_at_their_tails() -> None:
    orders, scenario, tails = book(kafka={"consumers": 2}, http={"consumers": 7})
    found = [order for order in orders.phase(scenario.load, tails) if order.role.endswith("consume")]
    for role in ("kafka-consume", "http-consume"):
        places = [place for order in found if order.role == role for place in order.places]
        assert sorted(places) == scenario.places
    assert all(order.starts == [tails[place].tail for place in order.places] for order in found)
    assert all(order.places for order in found)


def test_producers_share_the_rate() -> None:
    values: dict[str, Any] = {"load": {"rate_mb_s": 10, "record_bytes": 1000}, "kafka": {"producers": 2}}
    orders, scenario, tails = book(**values, http={"producers": 1, "share": 0.2, "records_per_request": 7})
    found = [order for order in orders.phase(scenario.load, tails) if order.role.endswith("produce")]
    assert [(order.role, order.per_s, order.number, order.of) for order in found] == [
        ("kafka-produce", 8_000, 0, 2),
        ("kafka-produce", 8_000, 1, 2),
        ("http-produce", 2_000, 0, 1),
    ]
    assert len({order.hammer for order in found}) == 3
    assert found[0].bootstrap == "h:9000,h:9001"
    assert found[0].http == {"node-0": "h:8000", "node-1": "h:8001"}
    assert {orders.rows[order.hammer] for order in found} == {16, 7}
    assert all(order.ledger == "" for order in found)


@pytest.mark.parametrize(
    ("partitions", "values", "in_flight"),
    [
        ([1], {}, 1),  # of one partition no more are under way anyway
        ([5], {}, 1),
        ([8], {}, 3),
        ([900], {}, 5),
        ([900], {"kafka": {"in_flight": 4}}, 4),
        ([5, 5], {}, 3),
        ([1] * 8, {}, 1),
        ([8], {"stack": {"nodes": 3, "roles": ["write", "read"]}}, 3),
    ],
)
def test_a_producer_has_fewer_requests_at_a_node_than_that_leads_partitions(
    partitions: list[int], values: dict[str, Any], in_flight: int
) -> None:
    topics = [{"name": f"t{number}", "partitions": count} for number, count in enumerate(partitions)]
    orders, scenario, tails = book(**({"stack": {"nodes": 2}} | values), topics=topics)
    found = [order for order in orders.phase(scenario.load, tails) if order.role == "kafka-produce"]
    assert [settings_of(order)["max.in.flight.requests.per.connection"] for order in found] == [in_flight]


def test_hammers_of_a_later_phase_have_other_numbers_and_all_are_verified() -> None:
    orders, scenario, tails = book(verify="records")
    first = [order.hammer for order in orders.phase(scenario.load, tails)]
    second = [order.hammer for order in orders.phase(scenario.load, tails)]
    assert not {*first} & {*second}
    after = {place: Bounds(0, 100) for place in scenario.places}
    verifier = orders.verifier(tails, after)
    assert set(verifier.rows) == {hammer for hammer, role in orders.sent_by.items() if role == "kafka-produce"}
    assert verifier.starts == [10, 11, 12, 13, 14]
    assert verifier.ends == [100] * 5
    produced = next(order for order in orders.phase(scenario.load, tails) if order.role == "kafka-produce")
    assert produced.ledger == f"ledgers/{produced.hammer}"
