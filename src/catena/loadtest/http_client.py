"""A small HTTP/1.1 client on one connection that is kept: one request at a time.

What was sent and not answered may have been done. So there are two errors: NotSent, where nothing of the request can
have reached the server, and ConnectionError (or TimeoutError) for all else. A connection on which anything failed is
closed; the next request opens another one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

HEAD_MAX_BYTES = 64 << 10
BODY_MAX_BYTES = 256 << 20


class NotSent(Exception):
    """Nobody can have seen the request."""


class Answer(NamedTuple):
    status: int
    body: bytes


class HttpClient:
    def __init__(self, address: str, timeout_s: float, token: str = "") -> None:
        """`address`: HOST:PORT."""
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._timeout_s = timeout_s
        self._head_end = f"Host: {address}\r\n" + (f"Authorization: Bearer {token}\r\n" if token else "")
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Raises NotSent, or an OSError (TimeoutError among them) after which it may have been done."""
        # A connection that was kept may have been closed by the other side; then nothing of this request was read.
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._open()
        except OSError as error:
            self.close()
            raise NotSent(error.strerror or type(error).__name__) from None
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(method, path, body)
        except asyncio.IncompleteReadError as error:
            self.close()
            raise ConnectionResetError("the connection was closed before the answer was complete") from error
        except (asyncio.LimitOverrunError, ValueError, IndexError) as error:
            self.close()
            raise ConnectionAbortedError(f"the answer is not HTTP: {error}") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._writer is not None:
            with suppress(OSError, RuntimeError):
                self._writer.transport.abort()
        self._reader = self._writer = None

    async def _open(self) -> None:
        if self._reader is not None and (self._reader.at_eof() or self._reader.exception() is not None):
            self.close()
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=HEAD_MAX_BYTES)

    async def _exchange(self, method: str, path: str, body: bytes) -> Answer:
        assert self._reader is not None
        assert self._writer is not None
        head = f"{method} {path} HTTP/1.1\r\n{self._head_end}"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._writer.writelines([head.encode(), b"\r\n", body])
        await self._writer.drain()
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ", 2)[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            received = await self._chunks()
        else:
            received = await self._reader.readexactly(_length(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, received)

    async def _chunks(self) -> bytes:
        assert self._reader is not None
        body = bytearray()
        while size := _length((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
            _length(str(len(body)))
        await self._reader.readuntil(b"\r\n")
        return bytes(body)


def _length(text: str | bytes, base: int = 10) -> int:
    length = int(text, base)
    if not 0 <= length <= BODY_MAX_BYTES:
        raise ValueError(f"a body of {length} bytes")
    return length
