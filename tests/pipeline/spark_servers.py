"""Spark as a service on 127.0.0.1: a standalone master with a worker, or a Connect server; processes of their own.

What starts them is what comes with PySpark, as anybody would. Executors and Python workers are below these processes,
and end with them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from catena.pipeline.spark.java import find_java, java_home_for_spark
from catena.pipeline.spark.session import QUICK_TO_START
from tests.cli.conftest import CATENA, clean_environment
from tests.clients.waiting import until

START_MAX_S = 90.0
END_MAX_S = 30
JOB_MAX_S = 110
VACUUM_MS = 2_000
"""How old an object is at least that vacuum takes."""


class SparkServers:
    """Starts them below `folder`, which takes all that they write."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self._folder = folder
        self._home = Path(pyspark.__file__).parent
        java_home = java_home_for_spark(find_java(os.environ), folder)
        quick = " ".join(QUICK_TO_START)
        self.environment = clean_environment(
            JAVA_HOME=str(java_home),
            SPARK_HOME=str(self._home),
            SPARK_LOCAL_IP="127.0.0.1",
            SPARK_LOCAL_DIRS=str(folder / "local"),
            SPARK_WORKER_DIR=str(folder / "work"),
            SPARK_DAEMON_JAVA_OPTS=quick,
            PYSPARK_PYTHON=sys.executable,
            NO_PROXY="127.0.0.1",
        )

    @contextmanager
    def standalone(self) -> Iterator[str]:
        """The address of a master that has one worker, of two cores."""
        port = free_port()
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        worker = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "--memory", "1g"]
        url = f"spark://127.0.0.1:{port}"
        with (
            self._running("master", "spark-class", ["org.apache.spark.deploy.master.Master", *master]) as has_said,
            self._running("worker", "spark-class", ["org.apache.spark.deploy.worker.Worker", *worker, url]),
        ):
            until(lambda: has_said("Registering worker"), "the master has a worker", START_MAX_S)
            yield url

    @contextmanager
    def connect_server(self) -> Iterator[str]:
        """The address of a Connect server, with a Spark of its own, of two cores."""
        port = free_port()
        options = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.extraJavaOptions": " ".join(QUICK_TO_START),
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
        }
        arguments = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2,3]"]
        for name, value in options.items():
            arguments += ["--conf", f"{name}={value}"]
        with self._running("connect", "spark-submit", arguments) as has_said:
            until(lambda: has_said("Spark Connect server started"), "the Connect server is there", START_MAX_S)
            yield f"sc://127.0.0.1:{port}"

    @contextmanager
    def _running(self, name: str, program: str, arguments: Sequence[str]) -> Iterator[Callable[[str], bool]]:
        """Whether it has said something yet; fails if it has ended."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [self._home / "bin" / program, *arguments],
                cwd=self._folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def has_said(text: str) -> bool:
            assert process.poll() is None, f"the {name} has ended: {log.read_text(errors='replace')[-2000:]}"
            return text in log.read_text(errors="replace")

        try:
            yield has_said
        finally:
            process.terminate()
            try:
                process.wait(END_MAX_S)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Commands:
    """`catena` with a log of its own; what is stored gets old enough for vacuum in two seconds."""

    def __init__(self, folder: Path, environment: dict[str, str], where: Sequence[str]) -> None:
        self._where = where
        self._environment = {
            **environment,
            "CATENA_DATA": str(folder / "data"),
            "CATENA_PIPELINE__VACUUM__GRACE_MS": str(VACUUM_MS),
            "CATENA_PIPELINE__VACUUM__LONGEST_JOB_MS": "1",
            "CATENA_DISKLESS__WRITER__COMMIT_DEADLINE_MS": str(VACUUM_MS // 2),
        }

    def __call__(self, *arguments: str, input: str = "") -> str:
        ran = subprocess.run(
            [CATENA, *arguments],
            check=False,
            input=input,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=JOB_MAX_S,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
        return ran.stdout

    def job(self, *arguments: str) -> Any:
        return json.loads(self("pipeline", *arguments, *self._where, "--json"))


def check_jobs(catena: Commands) -> None:
    """Tier, vacuum and audit a log there: executors move all bytes, and nothing is lost."""
    lines = "".join(f"{number} {'x' * 400}\n" for number in range(3_000))
    catena("topic", "create", "t", "--partitions", "3")
    catena("produce", "t", input=lines)
    tiered = catena.job("tier", "--force-up-to", "latest")
    assert [each["outcome"] for each in tiered["partitions"]] == ["tiered"] * 3
    moved = sum(each["bytes_written"] for each in tiered["executors"].values())
    assert moved > len(lines) / 2  # compressed
    assert "range_get" not in tiered["driver"]["requests"]
    vacuumed = catena.job("vacuum")
    assert vacuumed["deleted"]["objects"] == vacuumed["orphans"]["wal"]["objects"] > 0
    audited = catena.job("audit")
    assert (audited["offsets"], audited["defects"], audited["unchecked"]) == (3_000, [], [])
    assert audited["orphans"]["objects"] == 0
    read = []
    for number in range(3):
        read += catena("consume", "t", "--partition", str(number), "--from", "earliest", "--to", "latest").splitlines()
    assert sorted(read) == sorted(lines.splitlines())


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
