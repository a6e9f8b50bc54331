"""What a task is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeAlias

from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.runtime import Clock, Entropy


class TaskContext(NamedTuple):
    objects: ObjectStore
    clock: Clock
    entropy: Entropy
    counted: CountedObjects
    """Below `objects`: what the store was asked."""


RunTask: TypeAlias = Callable[[str, TaskContext, bytes], Awaitable[bytes]]
"""By the name of a task; `run_task` is the one that is used outside of tests."""

OpenObjects: TypeAlias = Callable[[Clock, Entropy], AbstractAsyncContextManager[tuple[ObjectStore, CountedObjects]]]
"""Opens the store that tasks work on, in whichever process they run: it MUST be picklable, and mean the same store in
another working directory."""
