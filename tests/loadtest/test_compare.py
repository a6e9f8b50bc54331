from __future__ import annotations

from typing import Any

import msgspec

from catena.loadtest.compare import Side, compare, differences


def side(run: str, acked: float, **config: Any) -> Side:
    summary = {
        "run": run,
        "throughput": {"acked_mb_s": acked},
        "clients": {"produced": {"latency_ms": {"p50": 1.0, "p99": 5.0, "p99.9": 50.0}}},
        "capacity": None,
        "processes": {
            "node-0": {"cores": 0.5, "rss_max_bytes": 100_000_000},
            "servers": {"cores": 9, "rss_max_bytes": 1},
        },
        "findings": [{"severity": "error", "message": "x"}, {"severity": "note", "message": "y"}],
    }
    return Side(summary, {"load": {"rate_mb_s": 5}, **config}, {"python": "3.13"})


def test_figures_and_their_change() -> None:
    found = compare(side("a", 4.0), side("b", 5.0))
    rows = {row.name: row for row in found.figures}
    assert rows["acked"].change == 0.25
    assert (rows["produce p99.9"].a, rows["produce p99.9"].change) == (50.0, 0.0)
    assert (rows["node CPU"].a, rows["node memory, most"].b, rows["findings"].a) == (0.5, 100.0, 1.0)
    assert "capacity" not in rows
    assert found.config == {}
    assert msgspec.json.decode(msgspec.json.encode(found.shown()))["figures"][0]["change"] == 0.25


def test_what_differs_is_named_by_its_place() -> None:
    found = compare(
        side("a", 4.0, stack={"nodes": 1, "meta": "sqlite"}), side("b", 4.0, stack={"nodes": 2, "meta": "sqlite"})
    )
    assert found.config == {"stack.nodes": (1, 2)}


def test_differences_of_what_is_only_on_one_side() -> None:
    assert differences({"a": 1, "b": {"c": [1]}}, {"b": {"c": [2], "d": 3}}) == {
        "a": (1, None),
        "b.c": ([1], [2]),
        "b.d": (None, 3),
    }
    assert differences({"a": {"b": 1}}, {"a": 5}) == {"a": ({"b": 1}, 5)}


def test_no_change_can_be_told_from_nothing() -> None:
    rows = {row.name: row for row in compare(side("a", 0.0), side("b", 5.0)).figures}
    assert rows["acked"].change is None
