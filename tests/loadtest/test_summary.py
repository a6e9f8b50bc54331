from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from catena.loadtest.capacity import Search, Step
from catena.loadtest.clients import Clients
from catena.loadtest.faults import Happened
from catena.loadtest.hammers.base import Interval
from catena.loadtest.run_folder import ARTIFACTS, CLIENT, RunFolder
from catena.loadtest.summary import Outcome, summarize
from tests.loadtest.lines import BACK_AT, KILLED_AT, SCENARIO, SECONDS, made_up

OUTCOME = Outcome(
    started_at_ms=1_700_000_000_000,
    began_s=0.0,
    ended_s=float(SECONDS),
    in_log=1_000 * SECONDS,
    states={"node-0": "ready", "node-1": "ready", "servers": "running"},
    events=[Happened(8.5, "kill", "node-1"), Happened(12.0, "restarted", "node-1")],
    dead_hammers={},
    search=None,
    verified=None,
    unverified="",
    audit=None,
    interrupted=False,
)


def summary_of(folder: RunFolder, **changes: Any) -> dict[str, Any]:
    clients = Clients()
    for interval in folder.lines(CLIENT, Interval):
        clients.add(interval)
    for name in ARTIFACTS:
        if not (folder.path / name).exists():
            folder.write(name, {})
    outcome = msgspec.structs.replace(OUTCOME, **changes)
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(summarize(folder, SCENARIO, clients, outcome)))
    return found


def test_a_run_in_which_a_node_was_killed_and_nothing_lost_is_clean(tmp_path: Path) -> None:
    found = summary_of(made_up(tmp_path))
    assert found["clean"]
    assert found["throughput"]["acked_mb_s"] == pytest.approx(1.0)
    assert found["reconciliation"]["acked"] == found["reconciliation"]["in_log"] == 1_000 * SECONDS
    counted = 500 * (SECONDS + KILLED_AT + SECONDS - BACK_AT)
    assert found["reconciliation"]["counted_by_nodes"] == counted
    (finding,) = found["findings"]
    assert finding["severity"] == "note"
    assert f"counted {1_000 * SECONDS - counted:,} records less" in finding["message"]
    puts = 2 * (SECONDS + KILLED_AT + SECONDS - BACK_AT)
    assert found["stores"]["requests_per_gb"] == pytest.approx(puts / (SECONDS / 1_000))
    assert found["stores"]["requests_cost_usd_per_gb"] == pytest.approx(5e-6 * puts / (SECONDS / 1_000))
    assert found["memory"]["node-0"]["most"] > 0


def test_of_a_run_that_was_interrupted_the_rate_is_that_of_its_time(tmp_path: Path) -> None:
    folder = made_up(tmp_path)
    half = [each for each in folder.lines(CLIENT, Interval) if each.t <= SECONDS / 2]
    (folder.path / CLIENT).unlink()
    folder.append(CLIENT, *half)
    in_log = 1_000 * SECONDS // 2
    assert summary_of(folder, in_log=in_log)["throughput"]["acked_mb_s"] < 0.6
    assert summary_of(folder, in_log=in_log, interrupted=True)["throughput"]["acked_mb_s"] == pytest.approx(1.0)


def test_the_rate_counts_from_when_hammers_were_let_go(tmp_path: Path) -> None:
    """The first sample, which times count from, may take seconds."""
    folder = made_up(tmp_path)
    later = [msgspec.structs.replace(each, t=each.t + 3) for each in folder.lines(CLIENT, Interval)]
    (folder.path / CLIENT).unlink()
    folder.append(CLIENT, *later)
    found = summary_of(folder, began_s=3.0)
    assert found["throughput"]["acked_mb_s"] == pytest.approx(1.0)
    assert not any("of the rate was reached" in each["message"] for each in found["findings"])


def test_what_is_lost_is_not_clean(tmp_path: Path) -> None:
    found = summary_of(made_up(tmp_path), in_log=1_000 * SECONDS - 1)
    assert not found["clean"]
    assert found["findings"][0] == {"severity": "error", "message": "1 acked records are not in the log"}


def test_a_node_that_died_by_itself_is_told_and_one_that_was_killed_is_not(tmp_path: Path) -> None:
    folder = made_up(tmp_path)
    dead = {"node-0": "ready", "node-1": "dead"}
    assert not summary_of(folder, states=dead)["clean"]
    assert summary_of(folder, states=dead, events=[Happened(8.5, "kill", "node-1")])["clean"]


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    folder = made_up(tmp_path)
    summary_of(folder)
    (folder.path / "host.jsonl").unlink()
    clients = Clients()
    found = summarize(folder, SCENARIO, clients, OUTCOME)
    assert "host.jsonl is missing in the run directory" in [each.message for each in found["findings"]]


def test_a_capacity_has_its_own_cost(tmp_path: Path) -> None:
    search = Search(SCENARIO.capacity)
    search.add(Step(1.0, 1.0, 5.0, 9.0, 0.0, t=2.0))
    search.add(Step(2.0, 1.0, 5.0, 9.0, 0.0, t=10.0))
    scenario = msgspec.structs.replace(SCENARIO, capacity=msgspec.structs.replace(SCENARIO.capacity, step_s=4.0))
    folder = made_up(tmp_path)
    found = summarize(folder, scenario, Clients(), msgspec.structs.replace(OUTCOME, search=search))["capacity"]
    assert (found["mb_s"], found["p99_ms"]) == (1.0, 9.0)
    assert found["requests_per_gb"] == pytest.approx(16 / 0.004)
    assert [step.broke != "" for step in found["steps"]] == [False, True]
