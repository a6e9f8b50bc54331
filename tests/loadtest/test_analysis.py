from __future__ import annotations

from pathlib import Path

import pytest

from catena.loadtest.analysis import Grown, Recorded
from catena.loadtest.run_folder import METRICS, RunFolder
from catena.loadtest.sampler import NodeSample
from catena.loadtest.scenario import Scenario
from tests.loadtest.lines import BACK_AT, KILLED_AT, SECONDS, made_up, metrics


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(made_up(tmp_path))


def test_counts_of_a_node_that_was_started_anew_are_added_up(recorded: Recorded) -> None:
    found = recorded.grown(["node-0", "node-1"], 0.0, float(SECONDS))
    of_the_other = KILLED_AT + SECONDS - BACK_AT
    assert found.records == 500 * (SECONDS + of_the_other)
    assert found.requests["put"] == 2 * (SECONDS + of_the_other)
    assert found.cost_usd == pytest.approx(5e-6 * found.requests["put"])
    assert not found.complete
    assert recorded.grown(["node-0"], 0.0, float(SECONDS)).complete


def test_a_node_that_was_killed_for_good_leaves_counts_incomplete(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, Scenario("killed"), 0)
    for t in range(3):
        folder.append(METRICS, NodeSample(float(t), "node-0", 11, metrics(100 * t, t)))
    folder.append(METRICS, NodeSample(3.0, "node-0", 0, error="Connection refused"))
    folder.append(METRICS, NodeSample(3.0, "node-1", 0, error="Connection refused"))
    recorded = Recorded(folder)
    assert recorded.nodes == ["node-0", "node-1"]
    assert recorded.grown(["node-0"], 0.0, 2.0).complete is False
    assert recorded.grown(["node-1"], 0.0, 9.0) == Grown(0, {}, 0.0, False)


def test_who_was_busy(recorded: Recorded) -> None:
    assert recorded.busiest_producer(2.0, 12.0) == pytest.approx(0.2)
    assert recorded.host_busy(2.0, 12.0) == pytest.approx(0.75)
    assert recorded.busiest_producer(2.0, 2.5) is None
    assert recorded.host_busy(50.0, 60.0) is None


def test_a_span_is_from_sample_to_sample(recorded: Recorded) -> None:
    assert recorded.grown(["node-0"], 2.5, 5.5).records == 500 * 3
    assert recorded.grown(["node-0"], 5.0, 5.0).records == 0
    assert recorded.grown([], 0.0, 9.0).records is None


def test_throughput_counts_by_the_part_of_an_interval_that_is_inside(recorded: Recorded) -> None:
    assert recorded.acked_mb_s(0.0, 20.0) == pytest.approx(1.0)
    assert recorded.acked_mb_s(3.5, 7.25) == pytest.approx(1.0)
    assert recorded.acked_mb_s(15.0, 25.0) == pytest.approx(0.5)


def test_memory_is_that_of_nodes_that_lived_throughout(recorded: Recorded) -> None:
    found = recorded.memory(["node-0", "node-1"])
    assert set(found) == {"node-0"}
    assert found["node-0"].middle < found["node-0"].end <= found["node-0"].most == 100_000_000 + SECONDS * 1_000


def test_cpu_of_a_process_that_was_started_anew_is_not_negative(recorded: Recorded) -> None:
    table = recorded.process_table()
    assert table["node-0"]["cores"] == pytest.approx(0.5)
    assert table["node-1"]["cpu_s"] == pytest.approx(0.25 * (KILLED_AT + SECONDS - BACK_AT))
    curves = {series.name: series.points for series in recorded.cpu()}
    assert set(curves) == {"node-0", "node-1", "hammers"}
    assert all(value is None or value >= 0 for points in curves.values() for _, value in points)
    assert any(value is None for _, value in curves["node-1"])


def test_curves(recorded: Recorded) -> None:
    acked, read = recorded.throughput()
    assert (acked.name, read.name) == ("acked", "read (kafka)")
    assert all(value == pytest.approx(1.0) for _, value in acked.points)
    p99 = next(series for series in recorded.latency("produce") if series.name == "p99")
    worst = max(p99.points, key=lambda point: point[1] or 0)
    assert worst[0] == KILLED_AT + 1
    (puts,) = recorded.requests()
    assert puts.name == "put"
    assert puts.points[0][1] == pytest.approx(4.0)
    (cost,) = recorded.cost()
    values = [value for _, value in cost.points]
    assert values == sorted(value for value in values if value is not None)
    assert [series.name for series in recorded.troubles()] == ["backlog (records)"]


def test_a_run_that_left_nothing(tmp_path: Path) -> None:
    recorded = Recorded(RunFolder.create(tmp_path, Scenario("empty"), 0))
    assert recorded.process_table() == {}
    assert recorded.requests() == []
    assert recorded.acked_mb_s(0, 1) == 0.0
    assert recorded.memory(["node-0"]) == {}
