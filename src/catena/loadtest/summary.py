"""summary.json: what clients, brokers, stores and processes say of a run, side by side, and whether it adds up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from catena.loadtest.analysis import Grown, Recorded
from catena.loadtest.capacity import BLAMED, Search
from catena.loadtest.clients import Clients
from catena.loadtest.faults import Happened
from catena.loadtest.reconcile import Story, reconcile
from catena.loadtest.run_folder import ARTIFACTS, RunFolder
from catena.loadtest.scenario import Scenario
from catena.loadtest.stack import PIPELINE

VERSION = 1
GB = 1e9
OUTCOMES = ("due", "acked", "failed", "unknown", "dropped", "unanswered")
"""What becomes of records, as clients count them."""


class Outcome(msgspec.Struct, frozen=True):
    """What is known once the hammers have ended, beside what the run directory holds."""

    started_at_ms: int
    began_s: float
    """When the hammers were let go: after the first sample, which all times count from. Of a search, 0."""
    ended_s: float
    """When the last sample was taken."""
    in_log: int | None
    states: dict[str, str]
    events: Sequence[Happened]
    dead_hammers: dict[str, str]
    search: Search | None
    verified: dict[str, Any] | None
    unverified: str
    """Why what was acked could not be read back."""
    audit: dict[str, Any] | None
    interrupted: bool


def summarize(folder: RunFolder, scenario: Scenario, clients: Clients, outcome: Outcome) -> dict[str, Any]:
    recorded = Recorded(folder)
    produced = clients.of("produce")
    brokers = recorded.grown(recorded.nodes, 0.0, outcome.ended_s)
    pipeline = recorded.grown([name for name in recorded.counted if name == PIPELINE], 0.0, outcome.ended_s)
    load = scenario.load
    since = outcome.began_s + load.warm_up_s
    until = since + load.duration_s
    if outcome.interrupted:
        until = min(until, max((each.t for each in recorded.intervals if each.role.endswith("produce")), default=0.0))
    acked_mb_s = recorded.acked_mb_s(since, until)
    is_search = outcome.search is not None
    read = {role: clients.of(role).read for role in clients.roles if role.endswith("consume")}
    late_ms = None if is_search else produced.shown()["late_ms"]["p99"]
    memory = recorded.memory([name for name in outcome.states if name.startswith("node-")])
    story = Story(
        **{name: getattr(produced, name) for name in OUTCOMES},
        read={} if is_search else read,
        in_log=outcome.in_log,
        brokers=brokers.records,
        brokers_complete=brokers.complete,
        rate_share=None if is_search else acked_mb_s / load.rate_mb_s,
        verified=outcome.verified,
        unverified=outcome.unverified,
        audit=outcome.audit,
        memory=memory,
        dead_hammers=outcome.dead_hammers,
        dead_nodes=_dead(outcome),
        failed_events=tuple(f"{each.target}: {each.why}" for each in outcome.events if each.what == "failed"),
        late_ms=late_ms,
        produce_ms=produced.shown()["latency_ms"]["p99"],
        capacity_limit=BLAMED.get(outcome.search.limit, "") if outcome.search is not None else "",
        missing=tuple(name for name in ARTIFACTS if not (folder.path / name).exists()),
        interrupted=outcome.interrupted,
    )
    findings = reconcile(story)
    return {
        "version": VERSION,
        "run": folder.name,
        "scenario": scenario.name,
        "started_at_ms": outcome.started_at_ms,
        "seconds": round(outcome.ended_s, 3),
        "interrupted": outcome.interrupted,
        "clean": not any(each.severity == "error" for each in findings),
        "findings": findings,
        "throughput": {
            "asked_mb_s": None if is_search else load.rate_mb_s,
            "acked_mb_s": None if is_search else round(acked_mb_s, 3),
            "acked_records_per_s": None if is_search else round(acked_mb_s * 1e6 / load.record_bytes, 1),
        },
        "capacity": _capacity(outcome.search, recorded, scenario),
        "clients": clients.shown(),
        "reconciliation": {
            **{name: getattr(produced, name) for name in OUTCOMES},
            "counted_by_nodes": brokers.records,
            "counts_complete": brokers.complete,
            "in_log": outcome.in_log,
            "read_by_consumers": read,
        },
        "verified": outcome.verified,
        "audit": outcome.audit,
        "stores": _stores(brokers, pipeline, produced.bytes),
        "processes": recorded.process_table(),
        "memory": memory,
        "nodes_at_the_end": outcome.states,
        "events": list(outcome.events),
        "artifacts": {path.name: path.stat().st_size for path in sorted(folder.path.iterdir()) if path.is_file()},
    }


def _dead(outcome: Outcome) -> tuple[str, ...]:
    """A node that was ended on purpose may be dead, unless it was started again."""
    expected: set[str] = set()
    for event in outcome.events:
        if event.what in ("kill", "end"):
            expected.add(event.target)
        elif event.what == "restarted":
            expected.discard(event.target)
    return tuple(name for name, state in outcome.states.items() if state == "dead" and name not in expected)


def _stores(nodes: Grown, pipeline: Grown, acked_bytes: int) -> dict[str, Any]:
    """Requests to the object store. For each GB of record values that was acked, whoever read them as well."""
    gb = acked_bytes / GB
    kinds = sorted({*nodes.requests, *pipeline.requests})
    total = {kind: nodes.requests.get(kind, 0) + pipeline.requests.get(kind, 0) for kind in kinds}
    cost_usd = nodes.cost_usd + pipeline.cost_usd
    return {
        "requests": total,
        "requests_of_nodes": nodes.requests,
        "requests_of_pipeline": pipeline.requests,
        "requests_cost_usd": cost_usd,
        "requests_per_gb": round(sum(total.values()) / gb, 1) if gb else None,
        "requests_cost_usd_per_gb": cost_usd / gb if gb else None,
    }


def _capacity(search: Search | None, recorded: Recorded, scenario: Scenario) -> dict[str, Any] | None:
    if search is None:
        return None
    best = search.best
    found: dict[str, Any] = {"found": best is not None, "limit": search.limit, "steps": search.steps}
    if best is not None:
        load = scenario.load
        until = best.t + load.warm_up_s + scenario.capacity.step_s
        used = recorded.grown(list(recorded.counted), best.t, until)
        gb = recorded.acked_mb_s(best.t, until) * (until - best.t) * 1e6 / GB
        found |= {
            "mb_s": best.rate_mb_s,
            "p50_ms": best.p50_ms,
            "p99_ms": best.p99_ms,
            "requests_per_gb": round(sum(used.requests.values()) / gb, 1) if gb else None,
            "requests_cost_usd_per_gb": used.cost_usd / gb if gb else None,
        }
    return found
