from __future__ import annotations

import os
import socket

import pytest

from catena.errors import ConfigError
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks import TaskContext, probe, run_task
from catena.runtime import SystemClock, SystemEntropy


@pytest.fixture
def context() -> TaskContext:
    counted = CountedObjects(MemoryObjects(SystemClock()), SystemClock())
    return TaskContext(counted, SystemClock(), SystemEntropy(), counted)


async def test_a_probe_says_who_it_is_and_echoes(context: TaskContext) -> None:
    before = context.clock.now_ms()
    probed = probe.decode(await run_task("probe", context, b"\x00plan"))
    assert (probed.host, probed.pid, probed.parent_pid) == (socket.gethostname(), os.getpid(), os.getppid())
    assert before <= probed.now_ms <= context.clock.now_ms()
    assert probed.echo == b"\x00plan"


async def test_a_task_that_is_not_there(context: TaskContext) -> None:
    with pytest.raises(ConfigError, match="there is no task 'prboe'"):
        await run_task("prboe", context, b"")
