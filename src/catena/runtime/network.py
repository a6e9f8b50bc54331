"""Sockets: listening on an address, and connections as asyncio's protocols see them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, TypeAlias

MakeProtocol: TypeAlias = Callable[[], asyncio.BaseProtocol]

BACKLOG = 1024


class Listener(Protocol):
    @property
    def port(self) -> int:
        """The port that is listened on, also if any free one was asked for."""

    def close(self) -> None:
        """Take no more connections; those that are open stay."""


class Network(Protocol):
    async def listen(self, host: str, port: int, make_protocol: MakeProtocol) -> Listener:
        """Port 0 is any free one. Raises OSError if the address can't be had."""


class _SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self._port: int = server.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._server.close()


class SystemNetwork:
    async def listen(self, host: str, port: int, make_protocol: MakeProtocol) -> Listener:
        loop = asyncio.get_running_loop()
        return _SystemListener(await loop.create_server(make_protocol, host, port, backlog=BACKLOG))


def set_socket_options(transport: asyncio.BaseTransport) -> None:
    """Answers go out at once, and the kernel notices a peer that is gone."""
    raw = transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
