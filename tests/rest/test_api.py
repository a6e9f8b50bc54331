"""All paths, on a node: there from the start, or once it serves."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from catena.rest.api import REST_PATHS, description_routes
from catena.serve import serve
from tests.rest.conftest import Api, settings


async def test_the_description_is_served(api: Api) -> None:
    described = await api.ask("GET", "/openapi.json")
    assert (described.status, described.body["openapi"]) == (200, "3.1.0")
    for path, method in REST_PATHS.items():
        assert method.lower() in described.body["paths"][path]
    docs = await api.ask("GET", "/docs")
    assert (docs.status, docs.headers["content-type"]) == (200, "text/html; charset=utf-8")


def test_the_description_needs_no_node() -> None:
    assert set(description_routes("1")) == {"/openapi.json", "/docs"}


@pytest.mark.parametrize(("path", "method"), REST_PATHS.items())
async def test_other_methods_are_refused(api: Api, path: str, method: str) -> None:
    other = "GET" if method == "POST" else "POST"
    refused = await api.ask(other, path)
    assert (refused.status, method in refused.headers["allow"]) == (405, True)


async def test_other_paths_are_refused(api: Api) -> None:
    refused = await api.ask("POST", "/produces")
    assert refused.status == 404
    assert "/produce" in refused.body["message"]


async def test_a_body_that_is_too_large(api: Api) -> None:
    refused = await api.ask("POST", "/produce", b" " * ((8 << 20) + 1))
    assert refused.status == 413


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            await asyncio.sleep(0)


async def test_a_node_that_starts_says_so(tmp_path: Path) -> None:
    """The second waits for an id that the first holds."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    stores = {"meta": "", "objects": "", "data": str(tmp_path)}
    async with serve(settings(node={"id": 1}, **stores)):
        second = serve(settings(node={"id": 1}, http={"port": port}, **stores))
        starts = asyncio.ensure_future(second.__aenter__())
        reader, writer = await connected(port)
        writer.write(b"POST /produce HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        assert (await reader.readline()).startswith(b"HTTP/1.1 503")
        writer.close()
        starts.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starts


def test_nodes_that_are_not_asked_for_many_records_do_not_load_numpy() -> None:
    command = "import sys, catena.serve; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
