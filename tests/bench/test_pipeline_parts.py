"""The parts of the pipeline's benchmarks that decide something by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.pipeline_cat import CatCost, copy
from bench.pipeline_cold import Read
from bench.pipeline_idle import Pass, figures
from bench.pipeline_job import Cost
from bench.pipeline_processes import Process, cpu_by_role, parse_stat, peak_by_role, role_of, tree
from bench.pipeline_stand import PARTITIONS, Extent, blob_files, extents, fill, rounds, size_of, twin
from bench.serving import TICKS
from catena.pipeline.work import Usage


def test_a_line_of_proc_is_read_whatever_the_process_is_called() -> None:
    stat = f"42 (a) (b c) S 7 2 3 4 5 6 7 8 9 10 {TICKS} {2 * TICKS} 0 0 20 0"

    assert parse_stat(stat) == Process(42, 7, "a) (b c", 3.0)


def test_a_tree_is_all_below_a_process_and_nothing_else() -> None:
    parents = {1: 0, 2: 1, 3: 1, 4: 3, 5: 4, 6: 2}
    processes = {pid: Process(pid, parent, "", 0.0) for pid, parent in parents.items()}

    assert sorted(each.pid for each in tree(processes, 3)) == [3, 4, 5]


def test_roles_are_told_by_place_and_name() -> None:
    assert role_of(Process(1, 0, "java", 0.0), 1) == "driver"
    assert role_of(Process(2, 1, "java", 0.0), 1) == "jvm"
    assert role_of(Process(3, 2, "python3", 0.0), 1) == "workers"


def test_what_children_use_is_counted_while_they_live_and_afterwards() -> None:
    code = "import time; x = b'x' * 100_000_000\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    before = cpu_by_role(os.getpid())
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout is not None
    child.stdout.readline()
    alive = cpu_by_role(os.getpid())["workers"] - before["workers"]
    peak = peak_by_role(os.getpid())["workers"]
    child.communicate()
    ended = cpu_by_role(os.getpid())

    assert alive >= 0.25
    assert peak >= 100_000_000
    assert sum(ended.values()) - sum(before.values()) >= 0.25


def test_ranges_are_copied_in_their_order(tmp_path: Path) -> None:
    blobs = [tmp_path / name for name in ("a", "b")]
    blobs[0].write_bytes(b"0123456789")
    blobs[1].write_bytes(b"abcdefghij")
    out = tmp_path / "out"
    out.mkdir()
    first, second = map(str, blobs)

    size = copy([[Extent(first, 1, 2), Extent(second, 0, 3)], [Extent(first, 9, 1)]], out)

    assert size == 6
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"0": b"12abc", "1": b"9"}


def test_a_range_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123")
    (tmp_path / "out").mkdir()

    with pytest.raises(OSError, match="not copied as a whole"):
        copy([[Extent(str(tmp_path / "a"), 2, 4)]], tmp_path / "out")


async def test_a_log_is_blobs_that_hold_all_partitions_and_has_a_twin(tmp_path: Path) -> None:
    await fill(tmp_path / "log", 3 * (4 << 20))
    (tmp_path / "twin").mkdir()
    twin(tmp_path / "log", tmp_path / "twin")

    of_log, of_twin = [await extents(tmp_path / name) for name in ("log", "twin")]

    assert len(of_log) == PARTITIONS
    assert all(len({each.path for each in its}) == len(its) for its in of_log)
    assert {len(its) for its in of_log} <= {3, 4}
    moved = [[each._replace(path=each.path.replace("/log/", "/twin/")) for each in its] for its in of_log]
    assert of_twin == moved
    assert len(blob_files(tmp_path / "log")) <= 4
    assert size_of(blob_files(tmp_path / "log")) == size_of(blob_files(tmp_path / "twin"))


def test_a_round_leaves_nothing_behind(tmp_path: Path) -> None:
    for place in rounds(2, tmp_path):
        (place / "file").write_bytes(b"x")
        assert [path.name for path in tmp_path.iterdir()] == [place.name]

    assert list(tmp_path.iterdir()) == []


def test_costs_are_told_by_second_and_by_gb() -> None:
    cost = Cost(1.0, 4.0, 2_000_000_000, {"driver": 1.0, "jvm": 2.0, "workers": 3.0}, {}, Usage())

    assert (cost.mb_per_s, cost.cpu_per_gb) == (500.0, 3.0)
    assert CatCost(4.0, 2_000_000_000, 3.0).cpu_per_gb == 1.5


def test_reads_add_up() -> None:
    assert Read(1, 2.0, 3.0, 4, 5) + Read(1, 1.0, 1.0, 1, 1) == Read(2, 3.0, 4.0, 5, 6)


def test_an_idle_pass_is_billed_for_a_day() -> None:
    found = {figure.name: figure.value for figure in figures("new", [Pass(1.0, 0.5, 30, {"get": 10})] * 3, 10)}

    assert found["10 partitions, new: object requests"] == 10
    assert found["10 partitions, new: cost of object requests a day"] == pytest.approx(1440 * 10 * 4e-7)
