"""The node's HTTP port and the connections that came in through it."""

from __future__ import annotations

from catena.errors import ConfigError
from catena.http.base import Routes
from catena.http.connection import HttpConnection, HttpLimits, Observe
from catena.runtime import Clock, Listener, Network, Tasks

CHECK_S = 5.0


class HttpServer:
    def __init__(
        self,
        network: Network,
        clock: Clock,
        routes: Routes,
        limits: HttpLimits | None = None,
        observe: Observe | None = None,
    ) -> None:
        """`observe` is told of every answer, while it is sent."""
        self._network = network
        self._clock = clock
        self._routes = routes
        self._limits = limits or HttpLimits()
        self._observe = observe
        self._tasks = Tasks("http")
        self._listener: Listener | None = None
        self._connections: dict[HttpConnection, None] = {}
        self._held = 0
        self._lagging: dict[HttpConnection, None] = {}
        """Those whose clients had not taken all of an answer when it was sent."""

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
            self._routes,
            self._clock,
            self._tasks,
            self._limits,
            self._opened,
            self._closed,
            self._untaken,
            self._lags,
            self._hold,
            self._observe,
        )

    @property
    def room(self) -> int:
        """Bytes of answers that may wait for clients to take them, beside those that do."""
        return max(0, self._limits.untaken_max_bytes - self._untaken())

    def _untaken(self) -> int:
        """Asked with every request, and there may be a thousand connections: only those that lag are looked at."""
        if not self._lagging:
            return 0
        sizes = {connection: connection.untaken for connection in self._lagging}
        self._lagging = {connection: None for connection, size in sizes.items() if size}
        return sum(sizes.values())

    def _hold(self, more: int) -> int:
        self._held += more
        return self._held

    def _lags(self, connection: HttpConnection) -> None:
        self._lagging[connection] = None

    def _opened(self, connection: HttpConnection) -> None:
        """One too many: the one that has been idle for longest makes room, so that probes get through."""
        self._connections[connection] = None
        if len(self._connections) > self._limits.max_connections:
            idle = [each for each in self._connections if each is not connection and not each.is_busy]
            min(idle, key=lambda each: each.idle_since, default=connection).abort()

    def _closed(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)
        self._lagging.pop(connection, None)

    async def _check(self) -> None:
        while True:
            await self._clock.sleep(CHECK_S)
            now = self._clock.monotonic()
            for connection in list(self._connections):
                connection.check(now)
