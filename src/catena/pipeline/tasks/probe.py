"""The task that says who does it, and gives back what it was given: for tests, and to see that workers work."""

from __future__ import annotations

import os
import socket

import msgspec

from catena.pipeline.tasks.base import TaskContext


class Probed(msgspec.Struct, frozen=True):
    host: str
    parent_pid: int
    """On Spark: one for each executor of a host."""
    pid: int
    now_ms: int
    """By the worker's clock."""
    echo: bytes


def run(context: TaskContext, plan: bytes) -> bytes:
    probed = Probed(socket.gethostname(), os.getppid(), os.getpid(), context.clock.now_ms(), plan)
    return msgspec.json.encode(probed)


def decode(result: bytes) -> Probed:
    return msgspec.json.decode(result, type=Probed)
