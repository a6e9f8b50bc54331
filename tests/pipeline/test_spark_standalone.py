"""Jobs on a standalone cluster, as `docs/spark.md` has it: master, worker, executors and driver are processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.conftest import Sparks
from tests.pipeline.spark_servers import Commands, SparkServers, check_jobs


@pytest.mark.long
@pytest.mark.timeout(600)
def test_all_jobs_run_on_a_standalone_cluster(sparks: Sparks, tmp_path: Path) -> None:
    sparks.close()  # the JVMs here are enough
    servers = SparkServers(tmp_path)
    with servers.standalone() as master:
        check_jobs(Commands(tmp_path, servers.environment, ["--master", master]))
