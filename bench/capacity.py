"""How much one node takes, and two, found by the load test: PostgreSQL, a real S3 server, Kafka clients on the same
machine.

Each size is a search of its own, on a stack of its own. MB/s is the highest rate that was kept with a p99 below a
second and nothing refused or dropped; requests and their cost are those of that step, of all nodes and all that was
read as well. Where the hammers or the machine were the limit, and not the nodes, the figure says so: it is a lower
bound.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bench.figures import Figure
from bench.kafka_clients import setting
from bench.serving import Missing
from catena.errors import CatenaError
from catena.loadtest.control import Control, check_hammers
from catena.loadtest.run import Run
from catena.loadtest.scenario import Scenario, parse_scenario
from catena.runtime import Disk, SystemClock, SystemNetwork

SIZES = (1, 2)


def run(folder: Path) -> list[Figure]:
    figures: list[Figure] = []
    for nodes in SIZES:
        figures += figures_of(nodes, asyncio.run(search(scenario(nodes), folder)))
    return figures


def scenario(nodes: int) -> Scenario:
    return parse_scenario(
        {
            "name": f"capacity-{nodes}",
            "purge": True,
            "stack": {"nodes": nodes, "meta": "postgres", "objects": "s3"},
            "topics": [{"name": "orders", "partitions": 8}],
            "load": {"capacity": "find", "warm_up_s": 4, "backlog_max": 200_000},
            "kafka": {"producers": 2, "consumers": 1, "linger_ms": 50},
            "capacity": {
                "start_mb_s": setting("BENCH_CAPACITY_START_MB_S", 4),
                "step_s": setting("BENCH_CAPACITY_STEP_S", 20),
                "halvings": 3,
            },
        },
        "bench/capacity.py",
    )


async def search(wanted: Scenario, folder: Path) -> dict[str, Any]:
    disk = Disk()
    control = Control(folder, SystemClock(), SystemNetwork(), disk, _Quiet())
    try:
        check_hammers(wanted)
        summary = await control.run(None, wanted, False, False, lambda _run: None)
    except CatenaError as error:
        raise Missing(f"the stack does not start: {error}") from error
    finally:
        disk.close()
    found: dict[str, Any] = summary["capacity"]
    if not found["found"] or not summary["clean"]:
        raise Missing(f"no capacity was found: {[each['message'] for each in summary['findings']]}")
    return found


def figures_of(nodes: int, found: dict[str, Any]) -> list[Figure]:
    of = f"{nodes} node{'s' if nodes > 1 else ''}"
    bound = "" if found["limit"] == "cluster" else f", at least (limited by {found['limit']})"
    return [
        Figure(f"capacity, {of}{bound}", found["mb_s"], "MB/s"),
        Figure(f"p50 there, {of}", found["p50_ms"], "ms"),
        Figure(f"p99 there, {of}", found["p99_ms"], "ms"),
        Figure(f"S3 requests per GB, {of}", found["requests_per_gb"] or 0.0),
        Figure(f"cost of requests per GB, {of}", found["requests_cost_usd_per_gb"] or 0.0, "USD"),
    ]


class _Quiet:
    def state(self, name: str, state: str) -> None: ...

    def last_lines(self, name: str, lines: object) -> None: ...

    def say(self, words: str) -> None: ...

    def hammering(self, run: Run) -> None: ...
