"""The node's listeners and the connections that came in through them."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import msgspec

from catena.broker.bad_connections import BadConnections
from catena.broker.base import Answer, AnswerBudget, Client
from catena.broker.budget import Budget
from catena.broker.connection import Connection, ConnectionSettings
from catena.broker.request_counts import RequestCounts
from catena.errors import ConfigError
from catena.runtime import Clock, Listener, Network, Tasks
from catena.wire.requests import Request

log = logging.getLogger(__name__)

CHECK_S = 5.0
CHECK_AWAITED_S = 1.0
"""How often it is while some wait for others."""
DRAIN_POLL_S = 0.02

Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class ListenerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where clients connect, and which address they are told: behind a proxy or in a container they differ."""

    host: str = "127.0.0.1"
    port: Port = 9092
    """0: any free one."""
    advertised_host: str = ""
    advertised_port: Port = 0


class Server:
    def __init__(
        self,
        network: Network,
        clock: Clock,
        handle: Callable[[Request, Client], Awaitable[Answer]],
        settings: ConnectionSettings,
        answer_budget: AnswerBudget | None = None,
        counts: RequestCounts | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._handle = handle
        self._settings = settings
        self._budget = Budget(settings.total_max_bytes)
        self._answer_budget = answer_budget or AnswerBudget(settings.answers_max_bytes)
        self._bad_connections = BadConnections(clock)
        self.counts = counts or RequestCounts()
        self._tasks = Tasks("kafka")
        self._listeners: dict[str, Listener] = {}
        self._connections: dict[Connection, None] = {}

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def listen(self, name: str, host: str, port: int) -> int:
        """Returns the port that is listened on."""
        try:
            listener = await self._network.listen(host, port, lambda: self._connect(name))
        except OSError as error:
            remedy = "choose another port" if error.errno == errno.EADDRINUSE else "check the address"
            raise ConfigError(
                f"listener {name!r} can't listen on {host}:{port}: {error.strerror or error}; {remedy}"
            ) from error
        if not self._listeners:
            self._tasks.spawn("check connections", self._check())
        self._listeners[name] = listener
        return listener.port

    async def drain(self, max_wait_s: float) -> None:
        """Take no more connections and requests, and answer those that were taken, for so long at the most."""
        for listener in self._listeners.values():
            listener.close()
        for connection in list(self._connections):
            connection.end()
        deadline = self._clock.monotonic() + max_wait_s
        while self._connections and self._clock.monotonic() < deadline:
            await self._clock.sleep(DRAIN_POLL_S)
        if self._connections:
            given_up = {"connections": len(self._connections), "after_s": max_wait_s}
            log.warning("some requests did not end in time, and are given up", extra=given_up)

    async def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for connection in list(self._connections):
            connection.abort()
        await self._tasks.close()
        self._bad_connections.sum_up()

    def _connect(self, listener: str) -> Connection:
        return Connection(
            listener,
            self._handle,
            self._clock,
            self._tasks,
            self._settings,
            self._budget,
            self._answer_budget,
            self._bad_connections,
            self.counts,
            self._connected,
            self._disconnected,
        )

    def _connected(self, connection: Connection) -> None:
        self._connections[connection] = None
        self.counts.connections_opened += 1
        if len(self._connections) > self._settings.max_connections:
            connection.hang_up(f"there are {self._settings.max_connections} connections already")

    def _disconnected(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    async def _check(self) -> None:
        due = self._clock.monotonic() + CHECK_S
        while True:
            await self._clock.sleep(CHECK_AWAITED_S)
            if self._clock.monotonic() < due and not self._budget.has_waiting:
                continue
            self._bad_connections.check()
            # What has arrived is read first: a node that was held up itself blames no client for that.
            await self._clock.sleep(0)
            now = self._clock.monotonic()
            due = now + CHECK_S
            for connection in list(self._connections):
                connection.check(now)
