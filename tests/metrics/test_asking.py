"""Where samples come from. Nodes of a cluster are asked in tests/cli/test_cost.py."""

from __future__ import annotations

import socket
from base64 import b64encode
from pathlib import Path

import pytest

from catena.cluster.services import announce
from catena.cluster.view import Address, NodeRecord, encode_node
from catena.config import load
from catena.errors import ConfigError, StoreUnavailable
from catena.http.base import HttpRequest, HttpResponse
from catena.http.server import HttpServer
from catena.meta import keys
from catena.metrics.asking import Sample, ask, ask_all, find_all
from catena.runtime import Disk, SystemClock, SystemEntropy, SystemNetwork
from catena.stores import open_stores


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"{}")
    assert ask(str(tmp_path / "a")) == b"{}"
    with pytest.raises(ConfigError, match="no file that can be read"):
        ask(str(tmp_path / "b"))


def test_an_address_that_is_none() -> None:
    for place in ("http://127.0.0.1:not-a-port/", "http://[x"):
        with pytest.raises(ConfigError, match="is no address"):
            ask_all([place])


def test_an_address_without_a_host() -> None:
    with pytest.raises(ConfigError, match="http:// is no address: it names no host"):
        ask("http://")


def test_a_password_is_not_shown() -> None:
    place = f"http://me:secret@127.0.0.1:{closed_port()}/metrics"
    _, [silent] = ask_all([place])
    assert "does not answer" in silent.why
    assert "secret" not in f"{silent}"
    with pytest.raises(ConfigError) as wrong:
        ask("http://me:secret@127.0.0.1:not-a-port/")
    assert "secret" not in str(wrong.value)


async def test_a_password_is_sent() -> None:
    async def tell(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, dict(request.headers)[b"authorization"])

    server, disk = HttpServer(SystemNetwork(), SystemClock(), {"/metrics": {"GET": tell}}), Disk(1)
    try:
        port = await server.listen("127.0.0.1", 0)
        samples, _ = await disk.run(ask_all, [f"http://me:s%40cret@127.0.0.1:{port}"])
        assert samples == [Sample(f"http://me@127.0.0.1:{port}", b"Basic " + b64encode(b"me:s@cret"))]
    finally:
        disk.close()
        await server.close()


async def test_nodes_and_services_are_found(tmp_path: Path) -> None:
    settings, clock, entropy = load(data=str(tmp_path)), SystemClock(), SystemEntropy()
    async with open_stores(settings, clock, entropy) as stores:
        for node_id, http in ((0, Address("a", 1)), (1, Address("0.0.0.0", 2)), (2, None)):
            record = NodeRecord(
                listeners={"main": Address("public", 9092)},
                http=http,
                node_id=node_id,
                incarnation="x",
                started_at_ms=0,
            )
            await stores.meta.put(keys.node(node_id), encode_node(record))
        service = await announce(stores.meta, clock, entropy, Address("p", 3), "1.2")
        assert await find_all(settings, clock, entropy) == ["http://a:1", "http://public:2", "http://p:3"]
        await service.close()
        assert await find_all(settings, clock, entropy) == ["http://a:1", "http://public:2"]


async def test_who_answers_and_who_does_not() -> None:
    async def tell(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, request.path.encode())

    async def refuse(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(503)

    server = HttpServer(
        SystemNetwork(), SystemClock(), {"/metrics": {"GET": tell}, "/x": {"GET": tell}, "/y": {"GET": refuse}}
    )
    disk = Disk(1)
    try:
        here = f"http://127.0.0.1:{await server.listen('127.0.0.1', 0)}"
        nobody = f"http://127.0.0.1:{closed_port()}"
        samples, silent = await disk.run(ask_all, [here, f"{here}/x", nobody, f"{here}/y"])
        assert [(each.where, each.text) for each in samples] == [(here, b"/metrics"), (f"{here}/x", b"/x")]
        assert [each.where for each in silent] == [nobody, f"{here}/y"]
        assert "does not answer" in silent[0].why
        assert "status 503" in silent[1].why
        with pytest.raises(StoreUnavailable):
            await disk.run(ask, nobody)
    finally:
        disk.close()
        await server.close()
