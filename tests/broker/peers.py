"""Clients over real sockets, and a handler behind the server whose answers the test gives."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from catena.broker.base import Answer, Client, HangUp, Later
from catena.broker.connection import ConnectionSettings
from catena.broker.server import Server
from catena.runtime import Clock, SystemClock, SystemNetwork
from catena.wire.apis import APIS
from catena.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from catena.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from catena.wire.messages.produce import ProduceRequest
from catena.wire.messages.sync_group import SyncGroupRequest
from catena.wire.requests import HEADER, Request
from catena.wire.schema import Message
from catena.wire.writer import write_message

PATIENCE_S = 60
PRODUCE, HEARTBEAT, METADATA, API_VERSIONS, END_TXN, SYNC_GROUP = 0, 12, 3, 18, 26, 14


def frame(key: int, version: int, correlation_id: int, body: Message) -> bytes:
    api = APIS[key]
    flexible = api.is_flexible(version)
    header = HEADER.pack(key, version, correlation_id, -1) + (b"\0" if flexible else b"")
    out = b"".join(write_message(body, version, flexible, [header]))
    return struct.pack(">i", len(out)) + out


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


class Desk:
    """A handler whose answers the test gives, in the order it likes."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.later: list[asyncio.Future[Message | HangUp | None]] = []
        self.waits: list[asyncio.Future[None]] = []
        self.came = asyncio.Event()

    async def handle(self, request: Request, _client: Client) -> Answer:
        self.asked.append(request)
        self.came.set()
        match request.body:
            case HeartbeatRequest(group_id=group) if group.strip() == "later":
                self.later.append(asyncio.get_running_loop().create_future())
                return Later(self.later[-1])
            case SyncGroupRequest():
                self.waits.append(asyncio.get_running_loop().create_future())
                await self.waits[-1]
            case HeartbeatRequest(group_id="silent"):
                return None
            case HeartbeatRequest(group_id="broken"):
                raise ZeroDivisionError
            case HeartbeatRequest(group_id="unwritable"):
                return HeartbeatResponse(error_code=1 << 20)
            case HeartbeatRequest(group_id="bye"):
                raise HangUp("enough")
            case ProduceRequest():
                self.waits.append(asyncio.get_running_loop().create_future())
                await self.waits[-1]
                return None
            case MetadataRequest():
                return MetadataResponse(brokers=[MetadataResponseBroker(host="x" * 30_000) for _ in range(40)])
        return HeartbeatResponse(error_code=7)

    async def until_asked(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.asked) < count:
                self.came.clear()
                await self.came.wait()


class Peer:
    def __init__(self, reader: asyncio.StreamReader, socket: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.socket = socket

    def send(self, correlation_id: int, group_id: str = "") -> None:
        self.socket.write(frame(HEARTBEAT, 4, correlation_id, HeartbeatRequest(group_id=group_id)))

    async def answer(self) -> int:
        """The correlation id of the next answer."""
        async with asyncio.timeout(PATIENCE_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            data = await self.reader.readexactly(size)
        return int.from_bytes(data[:4], "big")

    async def is_cut_off(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self.reader.read(1 << 20):
                    pass
        except ConnectionError:
            pass
        return True


class Clients:
    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        self.peers.append(Peer(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.peers[-1]


@asynccontextmanager
async def serving(desk: Desk, settings: ConnectionSettings, clock: Clock | None = None) -> AsyncIterator[Clients]:
    server = Server(SystemNetwork(), clock or SystemClock(), desk.handle, settings)
    clients = Clients(server, await server.listen("main", "127.0.0.1", 0))
    try:
        yield clients
    finally:
        for peer in clients.peers:
            peer.socket.close()
        await server.close()
