from __future__ import annotations

import msgspec
import pytest

from catena.loadtest.node_counts import NodeCounts, counts_of
from catena.loglets.diskless.counts import CommitCounts
from catena.metrics.figures import CostFigures, NodeFigures

NODE = {
    "node": {"id": 0},
    "commit": {"records": 12, "batches": 3},
    "object_store": {"put": {"requests": 5, "bytes": 1}, "get": {"requests": 2}},
    "cost": {"requests_usd": 0.5},
}


def test_a_node() -> None:
    assert counts_of(NODE) == NodeCounts(12, {"put": 5, "get": 2}, 0.5)


def test_a_node_has_what_is_read_here() -> None:
    """The names of the metrics' own types: who renames one finds it here."""
    assert {"node", "commit", "object_store", "cost"} <= set(NodeFigures.__struct_fields__)
    assert "records" in CommitCounts.__struct_fields__
    assert "requests_usd" in CostFigures.__struct_fields__


def test_the_pipeline() -> None:
    found = counts_of(
        {"tasks": {"requests": {"get": 3}}, "driver": {"requests": {"get": 1, "put": 2}}, "requests_cost_usd": 0.25}
    )
    assert found == NodeCounts(0, {"get": 4, "put": 2}, 0.25)


@pytest.mark.parametrize("metrics", [{}, {"status": "ok"}, {"node": {}, "object_store": 5}])
def test_what_is_neither(metrics: dict[str, object]) -> None:
    assert counts_of(metrics) is None


def test_a_node_that_says_less() -> None:
    found = counts_of({"node": {}})
    assert found == NodeCounts()
    assert found is not None
    assert found.less(found).records is None


def test_the_difference() -> None:
    before, after = NodeCounts(5, {"put": 1}, 1.0), NodeCounts(9, {"put": 4, "get": 2}, 1.5)
    assert after.less(before) == NodeCounts(4, {"put": 3, "get": 2}, 0.5)
    assert msgspec.structs.asdict(after.less(after))["requests"] == {"put": 0, "get": 0}
