"""Requests straight over a socket, for what no client library does: a thousand idle consumers, a look once in 20 ms."""

from __future__ import annotations

import asyncio
import socket

from catena.wire.apis import APIS, Api
from catena.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from catena.wire.messages.metadata import MetadataRequest, MetadataResponse
from catena.wire.reader import read_message
from catena.wire.requests import HEADER, SIZE_BYTES
from catena.wire.schema import Message
from catena.wire.writer import write_message

METADATA, FETCH = APIS[3], APIS[1]
METADATA_VERSION, FETCH_VERSION = 9, 12
CLIENT_ID = b"bench"
CORRELATION_BYTES = 4
CONNECT_MAX_S = 1.0


def request_frame(api: Api, version: int, body: Message) -> bytes:
    """A request with correlation id 0: no two are in flight on one connection."""
    tags = b"\0" if api.is_flexible(version) else b""
    header = HEADER.pack(api.key, version, 0, len(CLIENT_ID)) + CLIENT_ID + tags
    frame = b"".join(write_message(body, version, api.is_flexible(version), [header]))
    return len(frame).to_bytes(SIZE_BYTES, "big") + frame


def parse_response(api: Api, version: int, frame: memoryview) -> Message:
    # After the correlation id, a byte that says that the header has no tags: it never has any.
    at = CORRELATION_BYTES + api.is_flexible(version)
    message, _ = read_message(api.response, version, api.is_flexible(version), frame, at)
    assert isinstance(message, Message)
    return message


def answers_metadata(address: str) -> bool:
    """Whether there is a broker that names at least one broker, as clients need it to."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), CONNECT_MAX_S) as connection:
            connection.settimeout(CONNECT_MAX_S)
            connection.sendall(request_frame(METADATA, METADATA_VERSION, MetadataRequest(topics=[])))
            with connection.makefile("rb") as answer:
                size = int.from_bytes(answer.read(SIZE_BYTES), "big")
                frame = memoryview(answer.read(size))
    except OSError:
        return False
    if not frame:
        return False
    response = parse_response(METADATA, METADATA_VERSION, frame)
    return isinstance(response, MetadataResponse) and bool(response.brokers)


class Poller:
    """A consumer that asks again as soon as it is answered, and is never given anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: str) -> Poller:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def poll(self, topic: str, partition: int, max_wait_ms: int, offset: int = 0) -> FetchResponse:
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        body = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])
        self._writer.write(request_frame(FETCH, FETCH_VERSION, body))
        size = int.from_bytes(await self._reader.readexactly(SIZE_BYTES), "big")
        response = parse_response(FETCH, FETCH_VERSION, memoryview(await self._reader.readexactly(size)))
        assert isinstance(response, FetchResponse)
        return response

    def close(self) -> None:
        self._writer.close()
