"""Spark plans reads in a Python process of its own, by calls that block. Here are the event loop and the stores for it.

They are opened by the first call, and kept for the next. Between calls the loop stands still, which nothing here minds:
a node that only reads has nothing to do then. The meta store's address, and the password that may be in it, comes from
the settings of this process, and never leaves it. Where a node is asked instead, no store is opened at all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple, TypeAlias, TypeVar

from catena.node import Node
from catena.runtime import SystemClock, SystemEntropy
from catena.source.node_planner import Linked, NodePlanner
from catena.source.offsets import StreamOffsets
from catena.source.options import SourceOptions
from catena.source.planner import Planner
from catena.source.spark.task_process import Links, Task
from catena.source.splitting import Split
from catena.store_spec import StoreSpec, settings_of_log
from catena.stores import open_stores

T = TypeVar("T")

TOKEN_VARIABLE = "CATENA_TOKEN"

AnyPlanner: TypeAlias = Planner | NodePlanner


class _Opened(NamedTuple):
    runner: asyncio.Runner
    stack: AsyncExitStack
    planner: AnyPlanner
    store: StoreSpec | None
    """None: plans bring links."""


class PlanningProcess:
    """Picklable as long as nothing was asked."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: _Opened | None = None

    def ask(self, question: Callable[[AnyPlanner], Awaitable[T]]) -> T:
        opened = self._open()

        async def answer() -> T:
            return await question(opened.planner)

        return opened.runner.run(answer())

    def plan(self, question: Callable[[AnyPlanner], Awaitable[Sequence[Split | Linked]]]) -> list[Task]:
        return [self._task(each) for each in self.ask(question)]

    def commit(self, offsets: StreamOffsets) -> None:
        if self._options.commit_group is None:
            return

        async def commit(planner: AnyPlanner) -> None:
            assert isinstance(planner, Planner), "options that name a group name no node"
            await planner.commit(offsets)

        self.ask(commit)

    def close(self) -> None:
        if self._opened is not None:
            runner, stack, *_ = self._opened
            self._opened = None
            try:
                runner.run(stack.aclose())
            finally:
                runner.close()

    def _task(self, planned: Split | Linked) -> Task:
        if isinstance(planned, Linked):
            return Task(Links(tuple(planned.links.items())), planned.split)
        store = self._open().store
        assert store is not None
        return Task(store, planned)

    def _open(self) -> _Opened:
        if self._opened is None:
            runner, stack = asyncio.Runner(), AsyncExitStack()
            try:
                self._opened = _Opened(runner, stack, *runner.run(_open_planner(self._options, stack)))
            except BaseException:
                runner.run(stack.aclose())
                runner.close()
                raise
        return self._opened


async def _open_planner(options: SourceOptions, stack: AsyncExitStack) -> tuple[AnyPlanner, StoreSpec | None]:
    clock, entropy = SystemClock(), SystemEntropy()
    if options.node is not None:
        token = options.token or os.environ.get(TOKEN_VARIABLE, "")
        return NodePlanner(options.node, token, options.given, options.is_stream, clock), None
    settings = settings_of_log(options.config, options.data)
    store = StoreSpec.of(settings)
    stores = await stack.enter_async_context(open_stores(settings, clock, entropy))
    node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
    stack.push_async_callback(node.close)
    return Planner(node, options), store
