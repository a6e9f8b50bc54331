"""The node's HTTP port and the connections that came in through it."""

from __future__ import annotations

from catena.errors import ConfigError
from catena.http.base import Routes
from catena.http.connection import HttpConnection, HttpLimits
from catena.runtime import Clock, Listener, Network, Tasks

CHECK_S = 5.0


class HttpServer:
    def __init__(self, network: Network, clock: Clock, routes: Routes, limits: HttpLimits | None = None) -> None:
        self._network = network
        self._clock = clock
        self._routes = routes
        self._limits = limits or HttpLimits()
        self._tasks = Tasks("http")
        self._listener: Listener | None = None
        self._connections: dict[HttpConnection, None] = {}

    async def listen(self, host: str, port: int) -> int:
        """Returns the port that is listened on."""
        try:
            self._listener = await self._network.listen(host, port, self._connect)
        except OSError as error:
            raise ConfigError(
                f"HTTP can't listen on {host}:{port}: {error.strerror or error}; choose another port"
            ) from error
        self._tasks.spawn("check connections", self._check())
        return self._listener.port

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.abort()
        await self._tasks.close()

    def _connect(self) -> HttpConnection:
        return HttpConnection(
            self._routes, self._clock, self._tasks, self._limits, self._opened, self._closed, self._untaken
        )

    def _untaken(self) -> int:
        return sum(connection.untaken for connection in self._connections)

    def _opened(self, connection: HttpConnection) -> None:
        """One too many: the one that has been idle for longest makes room, so that probes get through."""
        self._connections[connection] = None
        if len(self._connections) > self._limits.max_connections:
            idle = [each for each in self._connections if each is not connection and not each.is_busy]
            min(idle, key=lambda each: each.idle_since, default=connection).abort()

    def _closed(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)

    async def _check(self) -> None:
        while True:
            await self._clock.sleep(CHECK_S)
            now = self._clock.monotonic()
            for connection in list(self._connections):
                connection.check(now)
