"""Objects behind links, served by a real HTTP server that can be told to misbehave."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from catena.errors import CatenaError, Corrupt, ObjectMissing, StoreRefused, StoreUnavailable
from catena.objects import linked
from catena.objects.base import Range
from catena.objects.linked import LinkedObjects
from catena.objects.retrying import RetryingObjects
from catena.runtime import SystemClock, SystemEntropy

DATA = bytes(range(256)) * 41


class Store(ThreadingHTTPServer):
    daemon_threads = True
    status = 206
    failures = 0
    at_most = 1 << 30
    shift = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_GET(self) -> None:
        store = self.server
        status = store.status
        if store.failures:
            store.failures -= 1
            status = 503
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["range"])
        assert found is not None
        assert self.path == "/objects/a?sign=1"
        start, end = int(found[1]), min(int(found[2]) + 1, len(DATA))
        body = DATA[start : min(end, start + store.at_most)]
        if status == 206 and not body:
            status = 416
        self.send_response(status)
        first = start + store.shift
        self.send_header("content-range", f"bytes {first}-{first + len(body) - 1}/{len(DATA)}")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def store() -> Iterator[Store]:
    server = Store(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
async def objects(store: Store) -> LinkedObjects:
    return LinkedObjects({"a": f"http://127.0.0.1:{store.server_address[1]}/objects/a?sign=1"})


@contextmanager
def refused(error: type[CatenaError], words: str) -> Iterator[None]:
    with pytest.raises(error, match=words):
        yield


async def test_objects_and_ranges(store: Store, objects: LinkedObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked, "PIECE_BYTES", 1000)
    assert (await objects.get("a")).data == DATA
    assert await objects.get_ranges("a", [Range(5, 7), Range(0, 0), Range(100, 3333)]) == [
        DATA[5:12],
        b"",
        DATA[100:3433],
    ]
    store.at_most = 900
    assert await objects.get_ranges("a", [Range(100, 3333)]) == [DATA[100:3433]]
    assert (await objects.get("a")).data == DATA
    await objects.close()


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (404, ObjectMissing, "a"),
        (403, StoreRefused, "not valid, or not any more: load the DataFrame again"),
        (429, StoreUnavailable, "status 429"),
        (500, StoreUnavailable, "status 500"),
        (200, StoreRefused, "does not answer to a byte range, but with 200"),
    ],
)
async def test_what_goes_wrong_is_named(
    store: Store, objects: LinkedObjects, status: int, error: type[CatenaError], words: str
) -> None:
    store.status = status
    with refused(error, words):
        await objects.get_ranges("a", [Range(0, 1)])
    await objects.close()


async def test_too_few_and_wrong_bytes_are_noticed(store: Store, objects: LinkedObjects) -> None:
    with refused(Corrupt, f"ends at byte {len(DATA)}; 2 bytes from {len(DATA) - 1} were asked for"):
        await objects.get_ranges("a", [Range(len(DATA) - 1, 2)])
    with refused(Corrupt, "ends before byte"):
        await objects.get_ranges("a", [Range(len(DATA), 2)])
    store.shift = 1
    with refused(Corrupt, "bytes 1 to 2 of .* came, 2 from 0 on were asked for"):
        await objects.get_ranges("a", [Range(0, 2)])
    await objects.close()


async def test_a_store_that_fails_for_a_while_is_asked_again(store: Store, objects: LinkedObjects) -> None:
    store.failures = 3
    retrying = RetryingObjects(objects, SystemClock(), SystemEntropy())
    assert await retrying.get_ranges("a", [Range(0, 2)]) == [DATA[:2]]
    assert store.failures == 0
    await retrying.close()


async def test_connections_that_the_other_side_has_closed_are_no_failures(store: Store, objects: LinkedObjects) -> None:
    await asyncio.gather(*(objects.get_ranges("a", [Range(0, 1)]) for _ in range(20)))
    for kept in objects._idle.values():
        assert kept
        for connection in kept:
            connection.sock.shutdown(socket.SHUT_RDWR)
    assert await objects.get_ranges("a", [Range(0, 2)]) == [DATA[:2]]
    await objects.close()


async def test_nobody_there(store: Store) -> None:
    objects = LinkedObjects({"a": "http://127.0.0.1:1/a"})
    with refused(StoreUnavailable, "127.0.0.1:1 can't be read"):
        await objects.get("a")
    with refused(StoreRefused, "no link to object b"):
        await objects.get("b")
    await objects.close()


async def test_nothing_but_reads(objects: LinkedObjects) -> None:
    for deed in (objects.head("a"), objects.put("a", []), objects.delete(["a"])):
        with refused(StoreRefused, "objects are read, and nothing else"):
            await deed
    with refused(StoreRefused, "objects are read, and nothing else"):
        objects.list("a")
    await objects.close()
