"""Real Spark for the tests: one JVM at a time, started when the first test needs it and kept for those after."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from catena.pipeline.spark.session import open_spark
from catena.testing.s3_server import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
LOCAL = "local[2,3]"
CLUSTER = "local-cluster[2,1,1024]"


class Sparks:
    """PySpark has one driver in a process: whoever asks for another master than the last one waits for its start."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._session: SparkSession | None = None
        self._master = ""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def get(self, master: str) -> SparkSession:
        if self._session is None or master != self._master:
            self.close()
            self._session = self._opened.enter_context(open_spark(master, options=self._connect_server()))
            self._master = master
        return self._session

    @property
    def remote(self) -> str:
        """A Spark Connect server, in the JVM of the local driver."""
        self.get(LOCAL)
        return f"sc://127.0.0.1:{self._port}"

    def close(self) -> None:
        self._opened.close()
        self._session = None

    def _connect_server(self) -> dict[str, str]:
        return {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
        }


@contextmanager
def opened_sparks() -> Iterator[Sparks]:
    import pyspark

    # Workers have the environment of the JVM, and that has ours as it is now.
    os.environ.setdefault("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    path = os.environ.get("PYTHONPATH")
    # Workers find the tests' own tasks there.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), path]))
    executors = Path(pyspark.__file__).parent / "work"
    there_before = executors.exists()
    sparks = Sparks()
    try:
        yield sparks
    finally:
        sparks.close()
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path
        if not there_before:
            # Spark's, of local clusters, and nowhere else.
            shutil.rmtree(executors, ignore_errors=True)
