"""What the tests of the pipeline share; Spark itself is in tests/sparks.py."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catena.config import Settings
from catena.objects.base import ObjectStore
from catena.pipeline.spark.work import SparkWork
from catena.runtime import SystemClock, SystemEntropy
from catena.store_spec import StoreSpec
from tests.loglets.stores import WAYS, Stores
from tests.pipeline.deeds import run_deed
from tests.sparks import CLUSTER, LOCAL, ROOT, Sparks
from tests.virtual_log.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CLUSTER", "LOCAL", "ROOT", "Sparks"]

if importlib.util.find_spec("pyarrow") is None and "spark" not in os.environ.get("CATENA_REQUIRE", "").split(","):
    collect_ignore = [
        "test_compact.py",
        "test_compact_on_spark.py",
        "test_compact_pass.py",
        "test_compact_passes.py",
        "test_compact_readers.py",
        "test_compact_work.py",
        "tasks/test_compacting.py",
        "tasks/test_scratch.py",
    ]


@pytest.fixture
def store(tmp_path: Path) -> StoreSpec:
    return StoreSpec.of(Settings(data=str(tmp_path)))


@pytest.fixture
async def objects(store: StoreSpec) -> AsyncIterator[ObjectStore]:
    async with store(SystemClock(), SystemEntropy()) as (objects, _):
        yield objects


def deeds_on(session: SparkSession, store: StoreSpec) -> SparkWork:
    return SparkWork(session, store, SystemEntropy(), run_deed)


@pytest.fixture
def work(sparks: Sparks, store: StoreSpec) -> Iterator[SparkWork]:
    work = deeds_on(sparks.get(LOCAL), store)
    yield work
    work.close()


@pytest.fixture
def cluster_work(sparks: Sparks, store: StoreSpec) -> Iterator[SparkWork]:
    work = deeds_on(sparks.get(CLUSTER), store)
    yield work
    work.close()


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Nodes on stores in memory, in both ways to commit."""
    async with Stores(request.param, tmp_path, request) as stores:
        # Sessions are kept alive all the time, and a quick clock would run away.
        stores.clock, stores.quick_clock.speed = SystemClock(), 1
        yield Cluster(stores)
