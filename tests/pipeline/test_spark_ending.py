"""A driver is ended while a task is at work, politely and not: nothing of Spark outlives it."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.waiting import until
from tests.pipeline.conftest import ROOT, Sparks


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
def test_nothing_of_spark_outlives_its_driver(sparks: Sparks, tmp_path: Path, number: signal.Signals) -> None:
    sparks.close()  # one JVM at a time
    temporary = tmp_path / "t"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "tests.pipeline.driver", str(tmp_path)]
    driver = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with driver:
        assert driver.stdout is not None
        assert driver.stderr is not None
        jvm, worker = map(int, driver.stdout.readline().split())
        # As a terminal does it, to all processes that it knows.
        os.killpg(driver.pid, number)
        code = driver.wait(60)
        for pid in (jvm, worker):
            until(functools.partial(is_gone, pid), f"process {pid} is gone")
        if number is not signal.SIGKILL:
            assert (code, driver.stderr.read()) == (7, "")
            assert not list(temporary.iterdir()), "what a driver leaves behind that could clean up"
