"""The parts of it that decide something by themselves."""

from __future__ import annotations

import pytest

from bench.capacity import figures_of, scenario


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_search_on_real_stores(nodes: int) -> None:
    wanted = scenario(nodes)
    assert (wanted.stack.nodes, wanted.stack.meta, wanted.stack.objects) == (nodes, "postgres", "s3")
    assert wanted.load.capacity == "find"


def test_figures_have_the_size_in_their_names() -> None:
    cost = {"requests_per_gb": 4_000.0, "requests_cost_usd_per_gb": 0.02}
    found = {"mb_s": 20.0, "p50_ms": 5.0, "p99_ms": 90.0, "limit": "cluster", **cost}
    assert [(figure.name, figure.value) for figure in figures_of(2, found)][:2] == [
        ("capacity, 2 nodes", 20.0),
        ("p50 there, 2 nodes", 5.0),
    ]
    assert figures_of(1, found)[4].unit == "USD"
    of_the_hammers = figures_of(1, {**found, "limit": "hammers"})
    assert of_the_hammers[0].name == "capacity, 1 node, at least (limited by hammers)"
