"""Fixtures that every test may use: the real servers, started once a run, or skipped with a reason.

Properties are not timed: how long an example takes says how busy the machine is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

from catena.errors import ConfigError
from catena.pipeline.spark.java import find_java
from catena.pipeline.spark.session import check_pyspark
from catena.testing.postgres_server import PostgresMissing, PostgresServer
from catena.testing.s3_server import S3ServerError, SeaweedServer
from tests.sparks import Sparks, opened_sparks

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

LONG = "long: takes minutes; run with -m long"
ALONE = "alone: measures time or fairness; no other test runs beside it"
SPARK = "spark"


def pytest_configure(config: pytest.Config) -> None:
    for marker in (LONG, ALONE):
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out_long(config, items)
    if config.pluginmanager.hasplugin("dsession") or hasattr(config, "workerinput"):
        _share_out(items)


def _share_out(items: list[pytest.Item]) -> None:
    """Between the workers of pytest-xdist: a file stays together, for its fixtures, and so do all tests of Spark, of
    which there is one in a process. These come first, because nothing takes longer."""
    groups = {item: SPARK if "sparks" in getattr(item, "fixturenames", ()) else item.path.name for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: groups[item] != SPARK)


def _leave_out_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "long" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def cannot_have(server: str, reason: str) -> NoReturn:
    """Skip, or fail where `CATENA_REQUIRE` (a comma-separated list) says that this server, or spark, must be there."""
    if server in os.environ.get("CATENA_REQUIRE", "").split(","):
        pytest.fail(f"CATENA_REQUIRE names {server}, but: {reason}")
    pytest.skip(f"no {server} on this machine: {reason}")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    server = SeaweedServer(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
    except S3ServerError as error:
        cannot_have("s3", str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server; tests keep apart by schemas of their own, and one that kills or pauses it starts its own."""
    # Not below pytest's own folder, which only root may enter if root runs the tests: the server runs as nobody then.
    with tempfile.TemporaryDirectory(prefix="catena-postgres-") as folder:
        try:
            server = PostgresServer(Path(folder))
            server.start()
        except PostgresMissing as error:
            cannot_have("postgres", str(error))
        yield server
        server.kill()


@pytest.fixture(scope="session")
def can_spark() -> None:
    try:
        check_pyspark(connect=True)
        find_java(os.environ)
    except ConfigError as error:
        cannot_have("spark", str(error))


@pytest.fixture(scope="session")
def sparks(can_spark: None) -> Iterator[Sparks]:
    with opened_sparks() as sparks:
        yield sparks
