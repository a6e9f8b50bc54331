"""A whole run, small: Kafka and HTTP clients against one node, read back, reconciled, reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catena.loadtest.control import Control
from catena.loadtest.hammers.base import Interval
from catena.loadtest.ledger import Ledger
from catena.loadtest.routing import Manifest
from catena.loadtest.run import Run
from catena.loadtest.run_folder import ARTIFACTS, CLIENT, MANIFEST, REPORT, SUMMARY, RunFolder
from catena.loadtest.scenario import Scenario, parse_scenario
from catena.runtime import Disk, SystemClock, SystemNetwork
from tests.loadtest.conftest import Watched

BOTH: dict[str, Any] = {
    "name": "both",
    "verify": "records",
    "sample_every_s": 0.5,
    "topics": [{"name": "both", "partitions": 3}],
    "load": {"duration_s": 2.0, "warm_up_s": 0.5, "rate_mb_s": 0.4, "interval_s": 0.5, "drain_s": 20},
    "http": {"producers": 1, "consumers": 1, "records_per_request": 10, "connections": 4},
}


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


def control(results: Path, disk: Disk, watched: Watched) -> Control:
    return Control(results, SystemClock(), SystemNetwork(), disk, watched)


async def do(scenario: Scenario, results: Path, disk: Disk, begun: Any = lambda _run: None) -> tuple[RunFolder, Any]:
    summary = await control(results, disk, Watched()).run(None, scenario, False, False, begun)
    return RunFolder(results / summary["run"]), summary


async def test_both_protocols_tell_the_same_story(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "not-to-be-written-anywhere"
    monkeypatch.setenv("CATENA_HTTP__TOKEN", token)
    monkeypatch.setenv("CATENA_TOKEN", token)
    folder, summary = await do(parse_scenario(BOTH, "both"), tmp_path, disk)
    assert [each["message"] for each in summary["findings"] if each["severity"] == "error"] == []
    assert summary["clean"]
    counts = summary["reconciliation"]
    assert counts["acked"] == counts["due"] == counts["in_log"] == counts["counted_by_nodes"] > 900
    assert counts["read_by_consumers"] == {"kafka-consume": counts["acked"], "http-consume": counts["acked"]}
    verified = summary["verified"]
    assert (verified["read"], verified["lost"], verified["duplicated"]) == (counts["acked"], 0, 0)
    roles = summary["clients"]["by_role"]
    assert roles["kafka-produce"]["acked"] > 400
    assert roles["http-produce"]["acked"] > 400
    assert all(role["latency_ms"]["p50"] > 0 for role in roles.values())
    assert summary["stores"]["requests"]["put"] > 0
    assert summary["stores"]["requests_cost_usd"] > 0
    assert summary["processes"]["node-0"]["rss_max_bytes"] > 10 << 20
    assert all((folder.path / name).exists() for name in (*ARTIFACTS, SUMMARY, REPORT))
    assert {"node-0.log"} <= {path.name for path in folder.logs.iterdir()}
    assert folder.stack().state == "down"
    assert sum(each.acked for each in folder.lines(CLIENT, Interval)) == counts["acked"]
    assert sum(len(Ledger.load(path)) for path in folder.ledgers.iterdir()) == counts["due"]
    assert "Throughput" in (folder.path / REPORT).read_text()
    for path in folder.path.rglob("*"):
        assert path.is_dir() or token.encode() not in path.read_bytes(), path


@pytest.mark.long
async def test_nodes_that_write_and_nodes_that_read(tmp_path: Path, disk: Disk) -> None:
    stack = {"nodes": 3, "roles": ["write", "read"]}
    folder, summary = await do(parse_scenario({**BOTH, "stack": stack}, "roles"), tmp_path, disk)
    assert [each["message"] for each in summary["findings"] if each["severity"] == "error"] == []
    counts = summary["reconciliation"]
    assert counts["acked"] == counts["due"] == counts["in_log"] == counts["counted_by_nodes"] > 900
    assert counts["read_by_consumers"] == {"kafka-consume": counts["acked"], "http-consume": counts["acked"]}
    manifest = folder.read(MANIFEST, Manifest)
    assert {owner for route in manifest.routes for owner in route.owners} == {"node-0", "node-2"}
    assert {owner for route in manifest.routes for owner in route.readers} == {"node-1"}


@pytest.mark.long
async def test_an_ack_of_what_is_not_in_the_log_is_found(tmp_path: Path, disk: Disk) -> None:
    """A hammer says of one record more that it was acked, and of another that it was acked at another offset."""

    class Tampering(Watched):
        def say(self, words: str) -> None:
            super().say(words)
            if words == "reading back what was acked":
                (path,) = (tmp_path / ".data").glob("*/ledgers/*")
                ledger = Ledger.load(path)
                ledger.acked(ledger.add(), 7)
                ledger.acked(0, 1_000_000)
                ledger.save(path)

    scenario = parse_scenario({**BOTH, "name": "tampered", "http": {}, "kafka": {"consumers": 0}}, "tampered")
    summary = await control(tmp_path, disk, Tampering()).run(None, scenario, False, False, lambda _run: None)
    errors = [each["message"] for each in summary["findings"] if each["severity"] == "error"]
    assert not summary["clean"]
    assert len(errors) == 3
    assert any("1 records were lost" in error for error in errors)
    assert any("1 records were moved" in error for error in errors)
    assert any("do not agree on what was acked" in error for error in errors)


@pytest.mark.long
async def test_an_interrupt_ends_the_load_and_the_rest_is_reconciled(tmp_path: Path, disk: Disk) -> None:
    load = {"duration_s": 600, "warm_up_s": 0, "rate_mb_s": 0.1, "interval_s": 0.2, "drain_s": 20}
    scenario = parse_scenario({"name": "interrupted", "load": load, "purge": True}, "interrupted")

    class Interrupting(Watched):
        def hammering(self, run: Run) -> None:
            run.interrupt()

    summary = await control(tmp_path, disk, Interrupting()).run(None, scenario, False, False, lambda _run: None)
    folder = RunFolder(tmp_path / summary["run"])
    assert summary["interrupted"]
    assert any("the run was interrupted" in each["message"] for each in summary["findings"])
    assert summary["reconciliation"]["in_log"] == summary["reconciliation"]["acked"]
    assert folder.stack().state == "down"
    assert not folder.data.exists()


@pytest.mark.long
async def test_a_killed_node_costs_no_record(tmp_path: Path, disk: Disk) -> None:
    scenario = parse_scenario(
        {
            **BOTH,
            "name": "killed",
            "stack": {"nodes": 2},
            "load": {**BOTH["load"], "duration_s": 20.0, "drain_s": 60},
            "events": [
                {"at": "30%", "kill": "node-1", "restart_after_s": 2},
                {"at": "80%", "stop": "node-0", "resume_after_s": 2},
            ],
        },
        "killed",
    )
    folder, summary = await do(scenario, tmp_path, disk)
    assert [each["message"] for each in summary["findings"] if each["severity"] == "error"] == []
    assert [each["what"] for each in summary["events"]] == ["kill", "restart", "restarted", "stop", "resume"]
    assert summary["verified"]["lost"] == 0
    remaps = [line["node"] for line in folder.lines("remap-events.jsonl", dict[str, Any])]
    assert "node-1" in remaps


@pytest.mark.long
async def test_a_capacity_is_found(tmp_path: Path, disk: Disk) -> None:
    scenario = parse_scenario(
        {
            "name": "capacity",
            "load": {"capacity": "find", "warm_up_s": 1},
            "kafka": {"consumers": 0},
            # Limits that a busy machine keeps as well: how a step is judged is in test_capacity.py.
            "capacity": {
                "start_mb_s": 0.5,
                "factor": 4,
                "halvings": 1,
                "step_s": 3,
                "max_mb_s": 2,
                "p99_ms": 60_000,
                "reached_share": 0.1,
            },
        },
        "capacity",
    )
    _, summary = await do(scenario, tmp_path, disk)
    assert summary["capacity"]["found"]
    assert summary["capacity"]["mb_s"] == 2
    assert summary["capacity"]["requests_per_gb"] > 0
    assert [step["rate_mb_s"] for step in summary["capacity"]["steps"]] == [0.5, 2]
