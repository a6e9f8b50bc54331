"""Objects that others let us read, each by a link of its own: no credentials are needed, and nothing else can be done.

A link is an address that may be read until it expires, made by an object store (a presigned address) or by a node. It
is read by plain HTTP with byte ranges, on threads; connections are kept for the next range.
"""

from __future__ import annotations

import builtins
import http.client
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, NoReturn
from urllib.parse import SplitResult, urlsplit

from catena.errors import Corrupt, ObjectMissing, StoreRefused, StoreUnavailable
from catena.objects.base import Blob, ObjectInfo, Range
from catena.runtime import Disk
from catena.types import ANY, Buffer, Buffers, ETag, Expect

TIMEOUT_S = 30.0
PIECE_BYTES = 4 << 20
"""Of one request. Nodes hand out no more at a time."""
THREADS = 8
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class Piece(NamedTuple):
    data: bytes
    size: int
    """Of the whole object."""


class LinkedObjects:
    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links
        self._threads = Disk(THREADS)
        self._idle: dict[str, builtins.list[http.client.HTTPConnection]] = defaultdict(builtins.list)
        """By host. A thread takes one out for as long as it uses it; list.pop and append are atomic."""

    async def get(self, key: str) -> Blob:
        parts: list[bytes] = []
        at, size = 0, 1
        while at < size:
            data, size = await self._threads.run(self._read, key, at, PIECE_BYTES)
            parts.append(data)
            at += len(data)
        return Blob(b"".join(parts), ETag(""))

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        return [await self._get_range(key, part) for part in ranges]

    async def _get_range(self, key: str, part: Range) -> Buffer:
        parts: list[bytes] = []
        at, end = part.start, part.start + part.length
        while at < end:
            data, size = await self._threads.run(self._read, key, at, min(PIECE_BYTES, end - at))
            if end > size:
                raise Corrupt(f"object {key} ends at byte {size}; {part.length} bytes from {part.start} were asked for")
            parts.append(data)
            at += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def head(self, key: str) -> NoReturn:
        _refuse(key)

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> NoReturn:  # noqa: ARG002
        _refuse(key)

    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:  # noqa: ARG002
        _refuse(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        _refuse(keys[0] if keys else "")

    async def close(self) -> None:
        self._threads.close()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _read(self, key: str, at: int, length: int) -> Piece:
        """At least one byte of what is asked for, and as many as the other side gives at once."""
        link = self._links.get(key)
        if link is None:
            raise StoreRefused(f"there is no link to object {key}")
        address = urlsplit(link)
        try:
            status, headers, body = self._ask(address, f"bytes={at}-{at + length - 1}")
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(f"object {key}: {address.netloc} can't be read: {error!r}") from error
        if status == 404:
            raise ObjectMissing(key)
        if status == 416:
            raise Corrupt(f"object {key} ends before byte {at}; {length} bytes from there on were asked for")
        if status in (401, 403):
            raise StoreRefused(f"object {key}: its link is not valid, or not any more: load the DataFrame again")
        if status == 429 or status >= 500:
            raise StoreUnavailable(f"object {key}: {address.netloc} answers with status {status}")
        found = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
        if status != 206 or found is None:
            raise StoreRefused(f"object {key}: {address.netloc} does not answer to a byte range, but with {status}")
        first, last, size = map(int, found.groups())
        if first != at or not 0 < len(body) <= length or last != at + len(body) - 1:
            raise Corrupt(f"object {key}: bytes {first} to {last} of {size} came, {length} from {at} on were asked for")
        return Piece(body, size)

    def _ask(self, address: SplitResult, byte_range: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        target = f"{address.path}?{address.query}" if address.query else address.path
        idle = self._idle[address.netloc]
        while idle:
            try:
                return self._ask_on(idle.pop(), idle, target, byte_range)
            except IndexError:
                break  # another thread was faster
            except (OSError, http.client.HTTPException):
                pass  # the other side closes what was idle for long, and that says nothing about its health
        secure = address.scheme == "https"
        make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return self._ask_on(make(address.netloc, timeout=TIMEOUT_S), idle, target, byte_range)

    def _ask_on(
        self,
        connection: http.client.HTTPConnection,
        idle: builtins.list[http.client.HTTPConnection],
        target: str,
        byte_range: str,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            connection.request("GET", target, headers={"range": byte_range})
            response = connection.getresponse()
            answer = response.status, response.headers, response.read()
        except BaseException:
            connection.close()
            raise
        idle.append(connection)
        return answer


def _refuse(key: str) -> NoReturn:
    raise StoreRefused(f"object {key}: by links objects are read, and nothing else")
