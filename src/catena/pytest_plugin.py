"""Kafka in pytest: `def test(catena_broker)` gets a real broker, in this process and in memory, on a free port.

    def test_orders(catena_broker):
        producer = Producer({"bootstrap.servers": catena_broker.bootstrap_servers})

A broker runs on an event loop in a thread of its own, so tests may block, and may use any client. It forgets all that
it holds when its fixture ends. pytest loads this module at each start: what is heavy is imported by those who use it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from catena.config import Settings
    from catena.serve import ServingNode

T = TypeVar("T")

START_MAX_S = 30.0
CALL_MAX_S = 30.0
DRAIN_MAX_MS = 100
"""A test that has ended has no more use for answers, least of all a consumer's that nobody has closed."""


@pytest.fixture
def catena_broker() -> Iterator[CatenaBroker]:
    """A Kafka broker of this test's own, with nothing in it."""
    with running_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def catena_broker_session() -> Iterator[CatenaBroker]:
    """One Kafka broker for all tests of the run: saves a few hundredths of a second, and tests share its topics."""
    with running_broker() as broker:
        yield broker


class CatenaBroker:
    def __init__(self, node: ServingNode, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._ends = asyncio.Event()
        self.host: str = node.address().host
        self.port: int = node.address().port

    @property
    def bootstrap_servers(self) -> str:
        """What clients call by this name: HOST:PORT."""
        return f"{self.host}:{self.port}"

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Configs by Kafka's names with _ for the dots: `create_topic("t", 3, retention_ms=1000)`.

        A topic that is not created is made by its first use, with one partition.
        """
        texts = {config.replace("_", "."): _as_text(value) for config, value in configs.items()}
        self._do(self._create(name, partitions, texts))

    def delete_topic(self, name: str) -> None:
        self._do(self._delete(name))

    async def _create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        await self._node.node.topics.create(name, partitions, configs=configs)
        # For those who list all topics and do not name this one.
        await self._node.view.read(name)

    async def _delete(self, name: str) -> None:
        await self._node.node.topics.delete(name)
        await self._node.view.refresh()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_MAX_S)


@contextmanager
def running_broker(**settings: Any) -> Iterator[CatenaBroker]:
    """What the fixtures are made of, for a fixture of one's own; `settings` as `catena.config.load` takes them."""
    from catena.config import load

    chosen = load(
        **{
            "meta": "memory:",
            "objects": "memory:",
            "kafka": {"listeners": {"main": {"port": 0}}, "drain_max_ms": DRAIN_MAX_MS},
            **settings,
        }
    )
    started: Future[CatenaBroker] = Future()
    ended: Future[None] = Future()
    threading.Thread(target=_run, args=[chosen, started, ended], name="catena-broker", daemon=True).start()
    broker = started.result(START_MAX_S)
    try:
        yield broker
    finally:
        broker._end()
        ended.result(CALL_MAX_S)


def _run(settings: Settings, started: Future[CatenaBroker], ended: Future[None]) -> None:
    from catena.serve import new_event_loop, serve

    async def main() -> None:
        async with serve(settings) as node:
            broker = CatenaBroker(node, asyncio.get_running_loop())
            started.set_result(broker)
            await broker._ends.wait()

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
    except BaseException as error:
        (ended if started.done() else started).set_exception(error)
    else:
        ended.set_result(None)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
