"""Executors that are processes of their own: two of them, as on a cluster, each with one core."""

from __future__ import annotations

import os
import signal

import pytest

from catena.errors import RetryLater
from catena.objects.base import ObjectStore
from catena.pipeline.spark.work import SparkWork
from tests.pipeline.conftest import CLUSTER, Sparks
from tests.pipeline.deeds import parent_of
from tests.pipeline.test_work import Done


async def test_both_executors_work_and_the_driver_reads_nothing(
    sparks: Sparks, cluster_work: SparkWork, objects: ObjectStore
) -> None:
    """The tasks that meet are at work at the same time, and an executor has one core."""
    assert await cluster_work.run("meet", [b"a b", b"b a"], Done()) == [b"met", b"met"]
    await objects.put("from", [bytes(1000)])
    await cluster_work.run("copy", [b"from to/%d" % number for number in range(20)], Done())
    executors = {executor.pid: usage for executor, usage in cluster_work.usage.items()}
    jvms = {parent_of(pid) for pid in executors}
    assert len(jvms) == 2
    assert sparks.get(CLUSTER).sparkContext._gateway.proc.pid not in jvms
    assert sum(usage.bytes_read for usage in executors.values()) == 20 * 500
    assert sum(usage.tasks for usage in executors.values()) == 22


async def test_an_executor_that_is_killed_is_replaced(cluster_work: SparkWork) -> None:
    plans, done = [b"1", b"2", b"kills", b"4", b"5"], Done()
    assert await cluster_work.run("kill the executor once", plans, done) == plans
    assert len(done) == 5


async def test_a_spark_that_has_ended_is_one_error(sparks: Sparks, cluster_work: SparkWork) -> None:
    """The last test here: the JVM is gone after it."""
    os.kill(sparks.get(CLUSTER).sparkContext._gateway.proc.pid, signal.SIGKILL)
    with pytest.raises(RetryLater, match="Spark has ended, and a new session has to be opened"):
        await cluster_work.run("echo", [b"1"] * 3, Done())
    sparks.close()
