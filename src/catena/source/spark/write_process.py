"""The Python processes in which Spark writes: the driver's plan and commit, tasks store. Each has its own event loop.

A plan and a commit open the stores, do what they are asked, and close them: Spark makes a new process for each. Tasks
keep the object store for the next task in the same worker. The meta store's address, and the password that may be in
it, comes from the settings of the driver's processes, and never leaves them.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from catena.config import Settings
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.runtime import SystemClock, SystemEntropy
from catena.source.adopting import GRACES, Adopter, Written
from catena.source.write_options import WriteOptions
from catena.source.writing import TopicPlan, WritePlan, put_under_new_name
from catena.store_spec import StoreSpec, settings_of_log
from catena.stores import open_stores
from catena.types import Buffers
from catena.virtual_log.topic_configs import settings_of
from catena.virtual_log.topics import TopicRecord

T = TypeVar("T")

STORES_MAX = 4


def plan_write(options: WriteOptions) -> tuple[WritePlan, StoreSpec]:
    """The topic has to be there, if one is named; columns may name any other that is there now."""
    settings = settings_of_log(options.config, options.data)

    async def plan(node: Node) -> WritePlan:
        topics = await node.topics.list() if options.topic is None else [await node.topics.get(options.topic)]
        return WritePlan(node.cluster_id, options.topic, {topic.name: _plan(topic) for topic in topics})

    return _with_node(settings, plan), StoreSpec.of(settings)


def commit_write(options: WriteOptions, app: str, version: int, written: Written, forget: bool) -> None:
    settings = settings_of_log(options.config, options.data)
    max_blob_age_ms = settings.pipeline.vacuum.grace_ms // GRACES

    async def commit(node: Node) -> None:
        await Adopter(node, SystemEntropy(), app, max_blob_age_ms, forget).commit(version, written)

    _with_node(settings, commit)


def put_here(store: StoreSpec, chunks: Buffers) -> str:
    """In a task: the key under which the blob is stored."""
    return _this_process().put(store, chunks)


class TaskStores:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stores: dict[StoreSpec, tuple[AsyncExitStack, ObjectStore]] = {}

    def put(self, store: StoreSpec, chunks: Buffers) -> str:
        return self._runner.run(self._put(store, chunks))

    def close(self) -> None:
        for opened, _ in self._stores.values():
            self._runner.run(opened.aclose())
        self._stores.clear()
        self._runner.close()

    async def _put(self, store: StoreSpec, chunks: Buffers) -> str:
        clock, entropy = SystemClock(), SystemEntropy()
        if store not in self._stores:
            while len(self._stores) >= STORES_MAX:
                opened, _ = self._stores.pop(next(iter(self._stores)))
                await opened.aclose()
            opened = AsyncExitStack()
            objects, _ = await opened.enter_async_context(store(clock, entropy))
            self._stores[store] = opened, objects
        return await put_under_new_name(self._stores[store][1], chunks, clock, entropy)


@functools.cache
def _this_process() -> TaskStores:
    process = TaskStores()
    atexit.register(process.close)
    return process


def _plan(topic: TopicRecord) -> TopicPlan:
    return TopicPlan(topic.topic_id, topic.partitions, settings_of(topic.configs))


def _with_node(settings: Settings, ask: Callable[[Node], Awaitable[T]]) -> T:
    async def run() -> T:
        async with _open_node(settings) as node:
            return await ask(node)

    return asyncio.run(run())


@asynccontextmanager
async def _open_node(settings: Settings) -> AsyncIterator[Node]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_stores(settings, clock, entropy) as stores:
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
        await node.incarnation.start(raise_now=False)
        try:
            yield node
        finally:
            try:
                await node.close()
            finally:
                await node.incarnation.close()
