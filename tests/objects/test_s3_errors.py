"""What becomes of each answer of a store, and of none, told by a real socket."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from catena.errors import (
    CatenaError,
    Conflict,
    Corrupt,
    ObjectMissing,
    OutcomeUnknown,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from catena.objects.base import ObjectStore, Range
from catena.objects.s3 import S3Objects, S3Settings
from catena.testing.contracts.objects import list_keys
from catena.types import ABSENT, ETag

CALLS: dict[str, Callable[[ObjectStore], Awaitable[object]]] = {
    "create": lambda store: store.put("a", [b"1"], ABSENT),
    "replace": lambda store: store.put("a", [b"1"], ETag('"1"')),
    "put": lambda store: store.put("a", [b"1"]),
    "get": lambda store: store.get("a"),
    "get_ranges": lambda store: store.get_ranges("a", [Range(0, 1)]),
    "head": lambda store: store.head("a"),
    "list": lambda store: list_keys(store, ""),
    "delete": lambda store: store.delete(["a", "b"]),
}
CONDITIONAL = ("create", "replace")
WRITES = (*CONDITIONAL, "put", "delete")
READS = ("get", "get_ranges", "head")
ALL = (*WRITES, *READS, "list")

ANSWERS: list[tuple[int, str, tuple[str, ...], type[CatenaError]]] = [
    # status, code, calls, what is raised
    (412, "PreconditionFailed", CONDITIONAL, Conflict),
    (404, "NoSuchKey", ("replace",), Conflict),
    (404, "", ("replace",), Conflict),
    (404, "NoSuchKey", READS, ObjectMissing),
    (404, "", READS, ObjectMissing),
    (404, "NoSuchBucket", (*WRITES, "get", "get_ranges", "list"), StoreRefused),
    (416, "InvalidRange", ("get_ranges",), Corrupt),
    (409, "ConditionalRequestConflict", CONDITIONAL, StoreUnavailable),
    (409, "OperationAborted", ("put", "delete"), StoreUnavailable),
    (503, "SlowDown", (*WRITES, *READS, "list"), StoreUnavailable),
    (429, "", ALL, StoreUnavailable),
    (400, "RequestTimeout", WRITES, StoreUnavailable),
    (500, "InternalError", WRITES, OutcomeUnknown),
    (502, "", WRITES, OutcomeUnknown),
    (503, "", WRITES, OutcomeUnknown),
    (504, "", WRITES, OutcomeUnknown),
    (500, "InternalError", (*READS, "list"), StoreUnavailable),
    (504, "", (*READS, "list"), StoreUnavailable),
    (507, "", WRITES, StoreFull),
    (403, "QuotaExceeded", ("put", "create"), StoreFull),
    (401, "", ALL, StoreRefused),
    (403, "AccessDenied", ALL, StoreRefused),
    (400, "ExpiredToken", ALL, StoreRefused),
    (301, "PermanentRedirect", ALL, StoreRefused),
    (501, "NotImplemented", CONDITIONAL, StoreRefused),
]


def answer(status: int, body: str) -> bytes:
    return f"HTTP/1.1 {status} Told\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@asynccontextmanager
async def store_that_answers(raw: bytes | None) -> AsyncIterator[S3Objects]:
    """Every request gets these bytes, then the connection is closed. None: no request is ever answered."""

    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if length := re.search(rb"content-length: (\d+)", head.lower()):
            await reader.readexactly(int(length[1]))
        if raw is None:
            await reader.read()
        else:
            writer.write(raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if head.startswith(b"HEAD") else raw)
        writer.close()
        await writer.wait_closed()

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.create_task(serve(reader, writer)))

    async with await asyncio.start_server(start, "127.0.0.1", 0) as server:
        yield store_at(server.sockets[0].getsockname()[1], timeout_ms=100 if raw is None else 10_000)
        await asyncio.gather(*served)


def store_at(port: int, timeout_ms: int = 10_000) -> S3Objects:
    return S3Objects(
        S3Settings(
            bucket="bucket",
            endpoint=f"http://127.0.0.1:{port}",
            region="us-east-1",
            access_key_id="id",
            secret_access_key="key",
            request_timeout_ms=timeout_ms,
        )
    )


@pytest.mark.parametrize(("status", "code", "calls", "error"), ANSWERS)
async def test_an_answer_is_named_by_what_to_do(
    status: int, code: str, calls: tuple[str, ...], error: type[CatenaError]
) -> None:
    async with store_that_answers(answer(status, f"<Error><Code>{code}</Code></Error>" if code else "")) as store:
        for name in calls:
            with pytest.raises(CatenaError) as raised:
                await CALLS[name](store)
            # A head has no body to tell the code in.
            assert type(raised.value) is error or (name == "head" and code), f"{name}: {raised.value!r}"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("raw", [b"", None, b"HTTP/1.1 2"], ids=["closed", "silent", "broken off"])
async def test_without_an_answer_a_write_is_unknown_and_a_read_can_be_repeated(raw: bytes | None, name: str) -> None:
    async with store_that_answers(raw) as store:
        with pytest.raises(OutcomeUnknown if name in WRITES else StoreUnavailable):
            await CALLS[name](store)


@pytest.mark.parametrize("name", ALL)
async def test_where_nobody_listens_nothing_is_applied(name: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnavailable, match="no connection"):
            await CALLS[name](store_at(bound.getsockname()[1]))


async def test_an_object_that_breaks_off_is_not_returned() -> None:
    torn = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\nETag: "1"\r\nConnection: close\r\n\r\nonly this'
    async with store_that_answers(torn) as store:
        with pytest.raises(StoreUnavailable):
            await store.get("a")


@pytest.mark.parametrize(("code", "error"), [("AccessDenied", StoreRefused), ("InternalError", OutcomeUnknown)])
async def test_a_delete_that_failed_for_one_key_has_failed(code: str, error: type[CatenaError]) -> None:
    one_of_two = (
        "<DeleteResult><Deleted><Key>a</Key></Deleted>"
        f"<Error><Key>b</Key><Code>{code}</Code><Message>no</Message></Error></DeleteResult>"
    )
    async with store_that_answers(answer(200, one_of_two)) as store:
        with pytest.raises(error):
            await store.delete(["a", "b"])


async def test_a_store_without_etags_is_refused() -> None:
    async with store_that_answers(answer(200, "")) as store:
        with pytest.raises(StoreRefused, match="no etag"):
            await store.get("a")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, "<Error><Code>NoSuchBucket</Code></Error>", r"answered 404 NoSuchBucket; create the bucket"),
        (403, "<Error><Code>AccessDenied</Code><Message>Not you.</Message></Error>", r"\(Not you\.\); allow these"),
        (401, "", "answered 401; check the credentials"),
        (507, "", "answered 507; free some space"),
    ],
)
async def test_the_message_names_the_object_the_answer_and_the_remedy(status: int, body: str, said: str) -> None:
    async with store_that_answers(answer(status, body)) as store:
        with pytest.raises(CatenaError, match=f"^cannot write s3://bucket/a: the store .*{said}") as raised:
            await store.put("a", [b"1"])
    assert "\n" not in str(raised.value)
