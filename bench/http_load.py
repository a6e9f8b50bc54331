"""Connections that ask an HTTP broker as fast as it answers: raw requests, made once, in a process of their own.

Each connection has a partition, and one request under way. `python -m bench.http_load JSON` does what the `Load` in the
JSON says, and prints how many records were taken or brought, and in how many seconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from typing import Any, NamedTuple, cast

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
COUNT = re.compile(rb'"count": ?(\d+)')


class Load(NamedTuple):
    address: str
    action: str
    """produce or consume"""
    topic: str
    connections: int
    records: int
    """Of a request."""
    record_bytes: int
    seconds: float
    start: int = 0
    upto: int = 0
    """To consume: offsets of each partition from one to the other, again and again."""


class Drove(NamedTuple):
    records: int
    seconds: float
    least: int
    """Records of the partition with the fewest."""


def drive(load: Load) -> Drove:
    """In another process, so that the clients' CPU is theirs."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.http_load", json.dumps(load)], check=True, stdout=subprocess.PIPE, text=True
    )
    return Drove(*json.loads(done.stdout))


class Connection(asyncio.Protocol):
    def __init__(self, load: Load, partition: int) -> None:
        self._load = load
        self._partition = partition
        self._received = bytearray()
        self._needs = 0
        self._offset = load.start
        self._produce = self._produce_request() if load.action == "produce" else b""
        self.records = 0
        self.is_over = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(ConnectionError(f"the broker hung up: {error}"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._needs:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            length = LENGTH.search(self._received, 0, end)
            assert length is not None
            self._needs = end + 4 + int(length[1])
        if len(self._received) >= self._needs:
            self._answered(bytes(self._received))
            self._received.clear()
            self._needs = 0
            if self.is_over:
                self.ended.set_result(None)
            else:
                self._ask()

    def _answered(self, answer: bytes) -> None:
        assert b" 200 " in answer[:32], answer[:500]
        count = COUNT.search(answer)
        assert count is not None
        self.records += int(count[1])
        self._offset += int(count[1])
        if not self._produce and self._offset + self._load.records > self._load.upto:
            self._offset = self._load.start

    def _ask(self) -> None:
        self._transport.write(self._produce or self._consume_request())

    def _produce_request(self) -> bytes:
        load = self._load
        records = ["x" * load.record_bytes] * load.records
        return self._request({"topic": load.topic, "partition": self._partition, "records": records})

    def _consume_request(self) -> bytes:
        load = self._load
        part = {"topic": load.topic, "partition": self._partition, "fetch_offset": self._offset}
        return self._request({**part, "partition_max_bytes": load.records * load.record_bytes})

    def _request(self, part: dict[str, Any]) -> bytes:
        body = json.dumps({"topic_partitions": [part]}).encode()
        head = f"POST /{self._load.action} HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(body)}\r\n"
        return head.encode() + b"content-type: application/json\r\n\r\n" + body


async def run(load: Load) -> Drove:
    host, _, port = load.address.rpartition(":")
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [
        loop.create_connection(lambda number=number: Connection(load, number), host, int(port))  # type: ignore[misc]
        for number in range(load.connections)
    ]
    connections = [protocol for _, protocol in await asyncio.gather(*made)]
    await asyncio.sleep(load.seconds)
    for connection in connections:
        connection.is_over = True
    await asyncio.gather(*(connection.ended for connection in connections))
    seconds = time.perf_counter() - began
    counts = [connection.records for connection in connections]
    return Drove(sum(counts), seconds, min(counts))


if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(run(Load(*json.loads(sys.argv[1]))))))
