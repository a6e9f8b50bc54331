"""A node in memory, asked over its HTTP port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from catena.config import Settings, load
from catena.formats.record_batch import parse_header
from catena.formats.records import Headers, build_batch
from catena.loglets.base import Entry
from catena.serve import ServingNode, serve


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]


class Api:
    def __init__(self, node: ServingNode, token: str = "") -> None:
        self.node = node
        self.token = token

    async def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.node.http.port)
        lines = [f"{method} {path} HTTP/1.1", "host: test", "connection: close", f"content-length: {len(body)}"]
        lines += [f"authorization: Bearer {self.token}"] if self.token else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        try:
            top, _, said = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        first, *fields = top.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in fields)
        is_json = headers.get("content-type") == "application/json"
        return Answer(int(first.split()[1]), json.loads(said) if is_json else said.decode(), headers)

    async def post(self, path: str, body: Any) -> Answer:
        return await self.ask("POST", path, json.dumps(body).encode())

    async def produce(self, *records: Any, topic: str = "t", partition: int = 0) -> Answer:
        return await self.post(
            "/produce", {"topic_partitions": [{"topic": topic, "partition": partition, "records": list(records)}]}
        )

    async def consume(self, offset: int = 0, topic: str = "t", partition: int = 0, **more: Any) -> Answer:
        asked = {"topic": topic, "partition": partition, "fetch_offset": offset}
        if "partition_max_bytes" in more:
            asked["partition_max_bytes"] = more.pop("partition_max_bytes")
        return await self.post("/consume", {"topic_partitions": [asked], **more})

    async def read(self, offset: int = 0, **more: Any) -> Any:
        """The one result of a fetch that went well."""
        answer = await self.consume(offset, **more)
        assert answer.status == 200, answer
        (result,) = answer.body["results"]
        return result

    async def append(self, *records: tuple[bytes | None, bytes | None, Headers, int], **batch: Any) -> int:
        """As Kafka's clients would, to partition 0 of `t`."""
        data = build_batch(records, **batch)
        log = await self.node.node.log("t", 0)
        return await log.append(Entry(parse_header(data), data))


def settings(**more: Any) -> Settings:
    kafka = {"listeners": {"main": {"port": 0}}, **more.pop("kafka", {})}
    return load(**{"meta": "memory:", "objects": "memory:", "kafka": kafka, **more})


@asynccontextmanager
async def serving(token: str = "", **more: Any) -> AsyncIterator[Api]:
    if token:
        more["http"] = {**more.get("http", {}), "token": token}
    async with serve(settings(**more)) as node:
        yield Api(node, token)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Topic `t` has two partitions."""
    async with serving() as api:
        await api.node.node.topics.create("t", 2)
        yield api
