"""Two runs side by side: what differs in what was asked, and in what came of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

FIGURES = (
    ("acked", "MB/s", "throughput.acked_mb_s"),
    ("capacity", "MB/s", "capacity.mb_s"),
    ("capacity p99", "ms", "capacity.p99_ms"),
    ("produce p50", "ms", "clients.produced.latency_ms.p50"),
    ("produce p99", "ms", "clients.produced.latency_ms.p99"),
    ("produce p99.9", "ms", "clients.produced.latency_ms.p99.9"),
    ("end to end p50", "ms", "clients.consumed.latency_ms.p50"),
    ("end to end p99", "ms", "clients.consumed.latency_ms.p99"),
    ("acked records", "", "reconciliation.acked"),
    ("failed", "", "reconciliation.failed"),
    ("unknown", "", "reconciliation.unknown"),
    ("dropped", "", "reconciliation.dropped"),
    ("requests per GB", "", "stores.requests_per_gb"),
    ("request cost per GB", "USD", "stores.requests_cost_usd_per_gb"),
    ("node CPU", "cores", "nodes.cores"),
    ("node memory, most", "MB", "nodes.rss_max_mb"),
    ("findings", "errors", "findings.errors"),
)


class Row(msgspec.Struct, frozen=True):
    name: str
    unit: str
    a: float | None
    b: float | None

    @property
    def change(self) -> float | None:
        """Of B against A, as a share of A."""
        return None if self.a is None or self.b is None or not self.a else (self.b - self.a) / self.a


class Comparison(msgspec.Struct, frozen=True):
    a: str
    b: str
    figures: list[Row]
    config: dict[str, tuple[Any, Any]]
    """Settings of the scenario that differ, by their place."""
    environment: dict[str, tuple[Any, Any]]

    def shown(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "figures": [{**msgspec.structs.asdict(row), "change": row.change} for row in self.figures],
            "config": self.config,
            "environment": self.environment,
        }


class Side(msgspec.Struct, frozen=True):
    """A run: three files of its directory."""

    summary: dict[str, Any]
    config: dict[str, Any]
    environment: dict[str, Any]


def compare(a: Side, b: Side) -> Comparison:
    left, right = _derived(a.summary), _derived(b.summary)
    rows = [Row(name, unit, _figure(left, place), _figure(right, place)) for name, unit, place in FIGURES]
    return Comparison(
        str(a.summary.get("run", "")),
        str(b.summary.get("run", "")),
        [row for row in rows if row.a is not None or row.b is not None],
        differences(a.config, b.config),
        differences(a.environment, b.environment),
    )


def differences(a: Any, b: Any, place: str = "") -> dict[str, tuple[Any, Any]]:
    """By place: what stands there in each; None where there is nothing."""
    if a == b:
        return {}
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        found: dict[str, tuple[Any, Any]] = {}
        for name in sorted({*a, *b}):
            found |= differences(a.get(name), b.get(name), f"{place}.{name}" if place else str(name))
        return found
    return {place: (a, b)}


def _derived(summary: Mapping[str, Any]) -> dict[str, Any]:
    nodes = [each for name, each in summary.get("processes", {}).items() if name.startswith("node-")]
    cores = [each["cores"] for each in nodes if each.get("cores") is not None]
    sizes = [each["rss_max_bytes"] for each in nodes]
    errors = [each for each in summary.get("findings", []) if each.get("severity") == "error"]
    return {
        **summary,
        "nodes": {"cores": sum(cores) if cores else None, "rss_max_mb": max(sizes) / 1e6 if sizes else None},
        "findings": {"errors": len(errors)},
    }


def _figure(values: Mapping[str, Any], place: str) -> float | None:
    """A name in the way may have a dot itself: p99.9."""
    if place in values:
        found = values[place]
        return float(found) if isinstance(found, int | float) else None
    name, _, rest = place.partition(".")
    inner = values.get(name)
    return _figure(inner, rest) if rest and isinstance(inner, Mapping) else None
