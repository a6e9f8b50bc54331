"""A run directory with the lines of a short run that never was: two nodes, one of which is killed and comes back."""

from __future__ import annotations

from pathlib import Path

from catena.loadtest.faults import Happened
from catena.loadtest.hammers.base import Interval
from catena.loadtest.histogram import Histogram
from catena.loadtest.proc import Host, Usage
from catena.loadtest.run_folder import CLIENT, EVENTS, HOST, METRICS, PROCESSES, RunFolder
from catena.loadtest.sampler import HostSample, NodeSample, ProcessSample
from catena.loadtest.scenario import Load, Scenario, Stack

SCENARIO = Scenario("made-up", stack=Stack(nodes=2), load=Load(duration_s=20, warm_up_s=0, rate_mb_s=1.0))
KILLED_AT, BACK_AT, SECONDS = 8, 12, 20


def write_lines(folder: RunFolder) -> None:
    for t in range(SECONDS + 1):
        node_lines(folder, float(t))
        usage = {
            "node-0": Usage(t * 0.5, 100_000_000 + t * 1_000, 20, 5, 1),
            "kafka-produce-1": Usage(t * 0.2, 50_000_000, 9, 3, 1),
        }
        if not KILLED_AT < t < BACK_AT:
            usage["node-1"] = Usage((t if t <= KILLED_AT else t - BACK_AT) * 0.25, 90_000_000, 20, 5, 1)
        folder.append(PROCESSES, ProcessSample(float(t), usage))
        folder.append(HOST, HostSample(float(t), Host(t * 1.5, t * 0.5, 8 << 30, 4 << 30, 1.0, 0, t * 1000)))
        if t:
            folder.append(CLIENT, produced(t), consumed(t))
    for happened in (Happened(KILLED_AT + 0.5, "kill", "node-1"), Happened(BACK_AT + 0.0, "restarted", "node-1")):
        folder.append(EVENTS, happened)


def node_lines(folder: RunFolder, t: float) -> None:
    """Each node commits 500 records and puts 2 objects a second."""
    folder.append(METRICS, NodeSample(t, "node-0", 11, metrics(500 * int(t), 2 * int(t))))
    if t <= KILLED_AT:
        folder.append(METRICS, NodeSample(t, "node-1", 12, metrics(500 * int(t), 2 * int(t))))
    elif t < BACK_AT:
        folder.append(METRICS, NodeSample(t, "node-1", 0, error="Connection refused"))
    else:
        since = int(t) - BACK_AT
        folder.append(METRICS, NodeSample(t, "node-1", 13, metrics(500 * since, 2 * since)))


def metrics(records: int, puts: int) -> dict[str, object]:
    return {
        "node": {"id": 0},
        "commit": {"records": records},
        "object_store": {"put": {"requests": puts}, "get": {"requests": 0}},
        "cost": {"requests_usd": puts * 5e-6},
    }


def produced(t: int) -> Interval:
    latency = Histogram()
    latency.add(0.5 if t == KILLED_AT + 1 else 0.005, 1_000)
    late = Histogram()
    late.add(0.001, 1_000)
    return Interval(
        "kafka-produce-1",
        "kafka-produce",
        float(t),
        1.0,
        due=1_000,
        acked=1_000,
        bytes=1_000_000,
        latency=latency.counts,
        late=late.counts,
    )


def consumed(t: int) -> Interval:
    latency = Histogram()
    latency.add(0.02, 1_000)
    return Interval(
        "kafka-consume-2", "kafka-consume", float(t), 1.0, read=1_000, bytes=1_000_000, latency=latency.counts
    )


def made_up(results: Path) -> RunFolder:
    folder = RunFolder.create(results, SCENARIO, 1_700_000_000_000)
    write_lines(folder)
    return folder
