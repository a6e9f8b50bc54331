"""Spark plans reads in a Python process of its own, by calls that block. Here are the event loop and the stores for it.

They are opened by the first call, and kept for the next. Between calls the loop stands still, which nothing here minds:
a node that only reads has nothing to do then. The meta store's address, and the password that may be in it, comes from
the settings of this process, and never leaves it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import NamedTuple, TypeVar

from catena.config import Settings, load
from catena.node import Node
from catena.runtime import SystemClock, SystemEntropy
from catena.source.options import SourceOptions
from catena.source.planner import Planner
from catena.store_spec import StoreSpec
from catena.stores import open_stores

T = TypeVar("T")


class _Opened(NamedTuple):
    runner: asyncio.Runner
    stack: AsyncExitStack
    planner: Planner
    store: StoreSpec


class PlanningProcess:
    """Picklable as long as nothing was asked."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: _Opened | None = None

    def ask(self, question: Callable[[Planner], Awaitable[T]]) -> T:
        opened = self._open()

        async def answer() -> T:
            return await question(opened.planner)

        return opened.runner.run(answer())

    @property
    def store(self) -> StoreSpec:
        """Where tasks find what was planned."""
        return self._open().store

    def close(self) -> None:
        if self._opened is not None:
            runner, stack, *_ = self._opened
            self._opened = None
            try:
                runner.run(stack.aclose())
            finally:
                runner.close()

    def _open(self) -> _Opened:
        if self._opened is None:
            settings = load(self._options.config, os.environ, data=self._options.data)
            store = StoreSpec.of(settings)
            runner, stack = asyncio.Runner(), AsyncExitStack()
            try:
                planner = runner.run(_open_planner(settings, self._options, stack))
            except BaseException:
                runner.run(stack.aclose())
                runner.close()
                raise
            self._opened = _Opened(runner, stack, planner, store)
        return self._opened


async def _open_planner(settings: Settings, options: SourceOptions, stack: AsyncExitStack) -> Planner:
    clock, entropy = SystemClock(), SystemEntropy()
    stores = await stack.enter_async_context(open_stores(settings, clock, entropy))
    node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
    stack.push_async_callback(node.close)
    return Planner(node, options)
