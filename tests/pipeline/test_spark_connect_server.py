"""Jobs on a Spark Connect server that is a process of its own, as `docs/spark.md` has it; here is no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import clean_environment
from tests.pipeline.conftest import Sparks
from tests.pipeline.spark_servers import Commands, SparkServers, check_jobs


@pytest.mark.long
@pytest.mark.timeout(600)
def test_all_jobs_run_on_a_connect_server(sparks: Sparks, tmp_path: Path) -> None:
    sparks.close()
    servers = SparkServers(tmp_path)
    with servers.connect_server() as remote:
        no_java = {**clean_environment(), "PATH": str(tmp_path)}
        check_jobs(Commands(tmp_path, no_java, ["--remote", remote]))
