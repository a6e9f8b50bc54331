"""What the JSON of a node's /metrics, or of the pipeline's, says about records and the object store. Pure.

A figure that is not there is None, or nothing: an older node tells less, and a run with it is reconciled as far as it
goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class NodeCounts(msgspec.Struct, frozen=True):
    """Since the process was started."""

    records: int | None = None
    """That were appended for clients, over Kafka and HTTP."""
    requests: dict[str, int] = {}
    """To the object store, by kind."""
    cost_usd: float = 0.0

    def less(self, before: NodeCounts) -> NodeCounts:
        records = None if self.records is None or before.records is None else self.records - before.records
        requests = {kind: count - before.requests.get(kind, 0) for kind, count in self.requests.items()}
        return NodeCounts(records, requests, self.cost_usd - before.cost_usd)


class _Counted(msgspec.Struct, frozen=True):
    records: int | None = None


class _Requests(msgspec.Struct, frozen=True):
    requests: int = 0


class _Cost(msgspec.Struct, frozen=True):
    requests_usd: float = 0.0


class _Node(msgspec.Struct, frozen=True):
    """What `catena.metrics.figures` has, as far as it is needed here."""

    commit: _Counted = _Counted()
    object_store: dict[str, _Requests] = {}
    cost: _Cost = _Cost()


class _Usage(msgspec.Struct, frozen=True):
    requests: dict[str, int] = {}


class _Pipeline(msgspec.Struct, frozen=True):
    """What `catena.jobs.figures` has."""

    tasks: _Usage
    driver: _Usage
    requests_cost_usd: float = 0.0


def counts_of(metrics: Mapping[str, Any]) -> NodeCounts | None:
    """None if this is what neither a node nor the pipeline tells."""
    try:
        if "node" in metrics:
            node = msgspec.convert(metrics, _Node)
            requests = {kind: each.requests for kind, each in node.object_store.items()}
            return NodeCounts(node.commit.records, requests, node.cost.requests_usd)
        pipeline = msgspec.convert(metrics, _Pipeline)
    except msgspec.ValidationError:
        return None
    requests = dict(pipeline.tasks.requests)
    for kind, count in pipeline.driver.requests.items():
        requests[kind] = requests.get(kind, 0) + count
    return NodeCounts(0, requests, pipeline.requests_cost_usd)
