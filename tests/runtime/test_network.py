"""Listening on real sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from catena.runtime import SystemNetwork
from catena.runtime.network import set_socket_options


class Echo(asyncio.Protocol):
    made: list[asyncio.Transport]

    def __init__(self, made: list[asyncio.Transport]) -> None:
        self.made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.made.append(transport)
        set_socket_options(transport)

    def data_received(self, data: bytes) -> None:
        self.made[-1].write(data)


async def test_a_listener_takes_connections_until_it_is_closed_and_keeps_those_it_has() -> None:
    made: list[asyncio.Transport] = []
    listener = await SystemNetwork().listen("127.0.0.1", 0, lambda: Echo(made))
    assert listener.port > 0
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"
    listener.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"b")
    assert await reader.readexactly(1) == b"b"
    raw = made[0].get_extra_info("socket")
    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    writer.close()
    made[0].close()


async def test_a_port_that_is_taken_is_an_error() -> None:
    listener = await SystemNetwork().listen("127.0.0.1", 0, lambda: Echo([]))
    with pytest.raises(OSError, match="in use"):
        await SystemNetwork().listen("127.0.0.1", listener.port, lambda: Echo([]))
    listener.close()
