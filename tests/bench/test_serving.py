from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.serving import ServerError, Serving, child, cpu_seconds_of, first_line, status_bytes

TICKS = os.sysconf("SC_CLK_TCK")


def test_cpu_counts_the_process_and_the_children_it_waited_for() -> None:
    before = "S 1 2 3 4 5 6 7 8 9 10"
    stat = f"42 (a (strange) name) {before} {TICKS} {2 * TICKS} {3 * TICKS} {4 * TICKS} 20 0"

    assert cpu_seconds_of(stat) == 10.0


def test_cpu_of_a_process_is_what_it_used() -> None:
    process = Serving(os.getpid(), "", 0.0)
    before, used = process.cpu_s, time.process_time()
    while time.process_time() - used < 0.2:
        pass

    assert 0.15 <= process.cpu_s - before <= 1.0


def test_memory_is_in_bytes() -> None:
    assert status_bytes("Name:\tx\nVmHWM:\t  12 kB\nVmRSS:\t 7 kB\n", "VmHWM") == 12 * 1024


def test_a_status_without_the_line_is_an_error_that_names_it() -> None:
    with pytest.raises(ServerError, match="VmHWM"):
        status_bytes("Name:\tx\n", "VmHWM")


def test_a_child_ends_with_its_context(tmp_path: Path) -> None:
    with child([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], tmp_path) as process:
        assert first_line(process, tmp_path) == b"up\n"

    assert process.returncode is not None


def test_a_child_that_fails_tells_why(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerError, match="no such luck"),
        child([sys.executable, "-c", "raise SystemExit('no such luck')"], tmp_path) as process,
    ):
        first_line(process, tmp_path)

    assert isinstance(process, subprocess.Popen)
    assert process.returncode == 1
