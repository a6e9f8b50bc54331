"""The least that a broker can do: requests are received, stored as they came in, and answered; nobody looks at them.

As durable as Catena on a folder and SQLite, and in the same way: what has gathered while a flush was under way becomes
one file, with fsync of it and of its folder, then an index entry for each request, in one transaction of SQLite, which
syncs as well. What Catena takes beyond it is for reading, checking, encoding and placing the records; what a plain
broker takes beyond it bounds how far anyone can be ahead of that. `python -m bench.http_bare FOLDER RECORDS` says its
port and serves until it is ended; its answers claim so many records for each request.
"""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import uvloop

from bench.http_files import Files
from bench.http_load import LENGTH


class Log:
    def __init__(self, folder: Path) -> None:
        self._files = Files(folder)
        self._next = 0

    def flush(self, bodies: list[bytes]) -> None:
        path = self._files.store(bodies)
        first, self._next = self._next, self._next + len(bodies)
        rows = range(first, self._next)
        self._files.index((f"llog/t/partitions/0/index/{number:020d}", path.name) for number in rows)


class Server:
    def __init__(self, log: Log, records: int) -> None:
        self._log = log
        self._thread = ThreadPoolExecutor(1)
        self._gathered: list[tuple[Connection, bytes]] = []
        self._flushing: asyncio.Task[None] | None = None
        body = b'{"count":%d}' % records
        self.answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    def take(self, connection: Connection, body: bytes) -> None:
        self._gathered.append((connection, body))
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        while self._gathered:
            gathered, self._gathered = self._gathered, []
            bodies = [body for _, body in gathered]
            await asyncio.get_running_loop().run_in_executor(self._thread, self._log.flush, bodies)
            for connection, _ in gathered:
                connection.transport.write(self.answer)
        self._flushing = None


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._pieces: list[bytes] = []
        self._needs = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        if not self._needs:  # the client of this benchmark sends a head at once
            length = LENGTH.search(data)
            assert length is not None
            self._needs = data.index(b"\r\n\r\n") + 4 + int(length[1])
        if sum(map(len, self._pieces)) >= self._needs:
            self._server.take(self, b"".join(self._pieces))
            self._pieces, self._needs = [], 0


async def main() -> None:
    server = Server(Log(Path(sys.argv[1])), int(sys.argv[2]))
    listening = await asyncio.get_running_loop().create_server(lambda: Connection(server), "127.0.0.1", 0)
    print(json.dumps({"http": f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"}), flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
