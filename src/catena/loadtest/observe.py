"""Prometheus beside a run: it scrapes the nodes, and the hammers begin once it sees them."""

from __future__ import annotations

import json
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from catena.errors import ConfigError, NeedsOperator
from catena.loadtest.http_client import HttpClient, NotSent
from catena.loadtest.stack import PIPELINE, PROMETHEUS, Stack
from catena.local_cluster.cluster import Progress
from catena.local_cluster.processes import is_running
from catena.runtime import Clock

SEEN_MAX_S = 90.0
POLL_S = 0.5
SCRAPE_S = 2
QUERY = 'count by (instance) ({__name__=~"catena_.+"})'
"""How many of our metrics it has of each node."""


async def observe(stack: Stack, clock: Clock, progress: Progress) -> str:
    """Start it; returns its address once it has metrics of every node. ConfigError if there is no Prometheus."""
    binary = find_prometheus()
    state = stack.state
    targets = [node.http for node in state.nodes]
    pipeline = [state.pipeline.http] if state.pipeline is not None else []
    config = stack.folder.data / "prometheus.yml"
    config.write_text(json.dumps(configuration(state.run, targets, pipeline)))
    address = f"127.0.0.1:{_free_port()}"
    command = [binary, f"--config.file={config}", f"--web.listen-address={address}", "--log.level=warn"]
    command.append(f"--storage.tsdb.path={stack.folder.data / 'prometheus'}")
    process = await stack.start_beside(PROMETHEUS, command, {}, progress)
    client = HttpClient(address, POLL_S * 4)
    deadline = clock.monotonic() + SEEN_MAX_S
    try:
        while not set(targets) <= await _seen(client):
            if not is_running(process) or clock.monotonic() > deadline:
                progress.state(PROMETHEUS, "failed")
                raise NeedsOperator(f"Prometheus does not see the nodes: {stack.last_words(PROMETHEUS)}")
            await clock.sleep(POLL_S)
    finally:
        client.close()
    stack.found_at(PROMETHEUS, process, address)
    progress.state(PROMETHEUS, "ready")
    return address


def configuration(run: str, nodes: list[str], pipeline: list[str]) -> dict[str, Any]:
    """As JSON, which YAML contains."""
    jobs = [
        {
            "job_name": name,
            "metrics_path": "/metrics/prometheus",
            "static_configs": [{"targets": targets, "labels": {"run": run}}],
        }
        for name, targets in (("catena", nodes), (f"catena-{PIPELINE}", pipeline))
        if targets
    ]
    return {"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": jobs}


def find_prometheus() -> str:
    """In PATH, or in `.dev` of the current folder or of one above it."""
    found = shutil.which("prometheus")
    here = Path.cwd()
    for folder in () if found else (here, *here.parents):
        for place in ("prometheus/usr/bin/prometheus", "usr/bin/prometheus", "bin/prometheus", "prometheus"):
            if (folder / ".dev" / place).is_file():
                return str(folder / ".dev" / place)
    if found is None:
        raise ConfigError(
            "option --observe: there is no `prometheus` in PATH, nor in .dev: install Debian's package `prometheus`, "
            "or put the binary of a release in PATH"
        )
    return found


async def _seen(client: HttpClient) -> set[str]:
    try:
        answer = await client.ask("GET", f"/api/v1/query?query={quote(QUERY)}")
        found = msgspec.json.decode(answer.body, type=dict[str, Any])
        return {each["metric"]["instance"] for each in found["data"]["result"]}
    except (NotSent, OSError, msgspec.MsgspecError, KeyError):
        return set()


def _free_port() -> int:
    with ExitStack() as held:
        bound = held.enter_context(socket.socket())
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
