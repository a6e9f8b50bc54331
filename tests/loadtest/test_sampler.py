from __future__ import annotations

from pathlib import Path

from catena.loadtest.run_folder import HOST, METRICS, PROCESSES, RunFolder
from catena.loadtest.sampler import HostSample, NodeSample, ProcessSample, Sampler
from catena.loadtest.stack import Stack
from catena.runtime import Disk, SystemClock
from tests.loadtest.conftest import SMALL


async def test_samples_of_a_node_of_one_that_is_silent_and_of_processes(stack: Stack, tmp_path: Path) -> None:
    clock, disk = SystemClock(), Disk(1)
    (node,) = stack.state.nodes
    nodes = {"node-0": node.http, "node-1": "127.0.0.1:1"}
    folder = RunFolder.create(tmp_path, SMALL, 0)
    sampler = Sampler(folder, clock, disk, clock.monotonic(), nodes, stack.roots)
    await sampler.sample()
    await sampler.sample()
    sampler.close()
    disk.close()
    lines = list(folder.lines(METRICS, NodeSample))
    assert [line.node for line in lines] == ["node-0", "node-1"] * 2
    assert lines[0].metrics is not None
    assert lines[0].pid == stack.roots()["node-0"]
    assert lines[1].metrics is None
    assert lines[1].error
    assert set(sampler.latest) == {"node-0"}
    usage = list(folder.lines(PROCESSES, ProcessSample))[-1].usage
    assert set(usage) == {"node-0", "orchestrator"}
    assert usage["node-0"].rss_bytes > 10 << 20
    hosts = list(folder.lines(HOST, HostSample))
    assert hosts[0].t <= hosts[1].t < 60
