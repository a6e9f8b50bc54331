from __future__ import annotations

import pytest

from catena.loadtest.clients import Clients
from catena.loadtest.hammers.base import Interval
from catena.loadtest.histogram import Histogram


def interval(hammer: str, t: float, **counts: int) -> Interval:
    role = hammer.rpartition("-")[0]
    histogram = Histogram()
    histogram.add(0.010, counts.get("acked", 0) or counts.get("read", 0))
    return Interval(hammer, role, t, 1.0, latency=histogram.counts, **counts)  # type: ignore[arg-type]


def test_totals_by_hammer_role_and_all_together() -> None:
    clients = Clients()
    clients.add(interval("kafka-produce-1", 1, due=10, acked=8, unknown=1, bytes=800, backlog=1))
    clients.add(interval("kafka-produce-1", 2, due=10, acked=10, bytes=1_000, backlog=1))
    clients.add(interval("http-produce-2", 1, due=5, acked=3, failed=1, dropped=1, bytes=300))
    clients.add(interval("kafka-consume-3", 1, read=7, bytes=700))
    produced = clients.of("produce")
    assert (produced.due, produced.acked, produced.failed, produced.unknown, produced.dropped) == (25, 21, 1, 1, 1)
    assert produced.unanswered == 1
    assert produced.backlog == 1
    assert clients.of("kafka-produce").acked == 18
    shown = clients.shown()
    assert shown["consumed"]["read"] == 7
    assert shown["by_hammer"]["http-produce-2"]["failed"] == 1
    assert shown["by_role"]["kafka-produce"]["latency_ms"]["p99"] == pytest.approx(10, rel=0.04)
    assert shown["by_role"]["kafka-produce"]["backlog_max"] == 1


def test_a_later_look_forgets_what_is_long_ago() -> None:
    clients = Clients()
    clients.add(interval("kafka-produce-1", 1, acked=1, bytes=9_000_000))
    for t in range(20, 25):
        clients.add(interval("kafka-produce-1", t, acked=1, bytes=1_000))
        clients.add(interval("kafka-produce-2", t, acked=1, bytes=1_000))
    rate, latency = clients.recent("produce")
    assert rate == pytest.approx(2_000)
    assert latency["p50"] == pytest.approx(10, rel=0.04)
    clients.forget_recent()
    assert clients.recent("produce")[0] == 0.0
    assert clients.recent("consume") == (0.0, {"p50": None, "p90": None, "p99": None, "p99.9": None})


def test_kinds_of_errors_are_bounded() -> None:
    clients = Clients()
    for number in range(100):
        clients.add(Interval("kafka-produce-1", "kafka-produce", 1.0, 1.0, errors={f"error {number}": 1}))
    errors = clients.of("produce").errors
    assert len(errors) <= 21
    assert sum(errors.values()) == 100
