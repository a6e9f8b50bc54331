"""Bytes to requests: what is taken, held against h11; what is refused; and that pieces make no difference."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.http.base import HttpRequest
from catena.http.parsing import LINE_MAX_BYTES, BadRequest, Incoming, Requests, parse_head

HEAD_MAX, BODY_MAX = 1_000, 100


def requests(*pieces: bytes) -> list[Incoming]:
    found, reader = [], Requests(HEAD_MAX, BODY_MAX)
    for piece in pieces:
        reader.feed(piece)
        while (incoming := reader.take()) is not None:
            found.append(incoming)
    return found


def refused(*pieces: bytes) -> tuple[int, str]:
    with pytest.raises(BadRequest) as caught:
        requests(*pieces)
    return caught.value.status, str(caught.value)


def request(line: bytes = b"GET / HTTP/1.1", *headers: bytes, body: bytes = b"", host: bytes = b"Host: x") -> bytes:
    return b"\r\n".join([line, *([host] if host else []), *headers, b"", body])


def test_a_request() -> None:
    sent = request(b"POST /a/b?c=d&e HTTP/1.1", b"X-Y:  z z\t", b"Content-Length: 3", body=b"abc")
    headers = ((b"host", b"x"), (b"x-y", b"z z"), (b"content-length", b"3"))
    assert requests(sent) == [(HttpRequest("POST", "/a/b", "c=d&e", headers, b"abc"), True)]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (request(b"GET  / HTTP/1.1"), 400),
        (request(b"GET / HTTP/1.1 "), 400),
        (request(b"G\x00T / HTTP/1.1"), 400),
        (request(b"GET /\xff HTTP/1.1"), 400),
        (request(b"GET / HTTP/2.0"), 505),
        (request(host=b""), 400),
        (request(b"GET / HTTP/1.1", b"host: y"), 400),
        (request(b"GET / HTTP/1.1", b"no colon"), 400),
        (request(b"GET / HTTP/1.1", b"sp ace: a"), 400),
        (request(b"GET / HTTP/1.1", b"before : a"), 400),
        (request(b"GET / HTTP/1.1", b" folded"), 400),
        (request(b"GET / HTTP/1.1", b"a: b\nc: d"), 400),
        (request(b"GET / HTTP/1.1", b"a: b\rc: d"), 400),
        (request(b"GET / HTTP/1.1", b"a: \x00"), 400),
        (request(b"POST / HTTP/1.1", b"content-length: -1"), 400),
        (request(b"POST / HTTP/1.1", b"content-length: +1"), 400),
        (request(b"POST / HTTP/1.1", b"content-length: 1_0"), 400),
        (request(b"POST / HTTP/1.1", b"content-length: 1, 2"), 400),
        (request(b"POST / HTTP/1.1", b"content-length: 1", b"content-length: 2"), 400),
        (request(b"POST / HTTP/1.1", b"content-length: " + b"9" * 30), 400),
        (request(b"POST / HTTP/1.1", b"content-length: 1", b"transfer-encoding: chunked"), 400),
        (request(b"POST / HTTP/1.0", b"transfer-encoding: chunked"), 400),
        (request(b"POST / HTTP/1.1", b"transfer-encoding: gzip, chunked"), 501),
        (request(b"POST / HTTP/1.1", b"transfer-encoding: chunked", b"transfer-encoding: chunked"), 501),
        (request(b"POST / HTTP/1.1", b"content-length: 101"), 413),
        (b"GET / HTTP/1.1\r\nlong: " + b"x" * HEAD_MAX, 431),
        (request(b"GET / HTTP/1.1", b"long: " + b"x" * HEAD_MAX), 431),
    ],
    ids=str,
)
def test_what_is_refused(sent: bytes, status: int) -> None:
    assert refused(sent)[0] == status


def chunked(body: bytes) -> bytes:
    return request(b"POST / HTTP/1.1", b"transfer-encoding: Chunked", body=body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"0\r\n\r\n", b""),
        (b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
        (b"a;x=y\r\n0123456789\r\n1 \r\n!\r\n00\r\ntrailer: x\r\n\r\n", b"0123456789!"),
    ],
)
def test_chunks(body: bytes, said: bytes) -> None:
    sent = chunked(body) + request(b"GET /next HTTP/1.1")
    for pieces in ([sent], [sent[at : at + 1] for at in range(len(sent))]):
        found = requests(*pieces)
        assert [each.request.path for each in found] == ["/", "/next"]
        assert found[0].request.body == said


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"zz\r\n", 400),
        (b"\r\n", 400),
        (b"-1\r\n", 400),
        (b"0x1\r\n", 400),
        (b"f" * 16 + b"\r\n", 400),
        (b"3\r\nabcd\r\n", 400),
        (b"65\r\n", 413),
        (b"5f\r\n" + b"x" * 95 + b"\r\n6\r\n", 413),
        (b"1;" + b"x" * LINE_MAX_BYTES, 400),
        (b"0\r\nno colon\r\n\r\n", 400),
        (b"0\r\n" + b"a: b\r\n" * LINE_MAX_BYTES, 400),
    ],
    ids=str,
)
def test_chunks_that_are_refused(body: bytes, status: int) -> None:
    assert refused(chunked(body))[0] == status


@pytest.mark.parametrize(
    ("line", "header", "keeps"),
    [
        (b"GET / HTTP/1.1", b"a: b", True),
        (b"GET / HTTP/1.1", b"Connection: Close", False),
        (b"GET / HTTP/1.1", b"connection: x, close", False),
        (b"GET / HTTP/1.1", b"connection: keep-alive", True),
        (b"GET / HTTP/1.0", b"a: b", False),
        (b"GET / HTTP/1.0", b"connection: keep-alive", False),
    ],
)
def test_which_connections_go_on(line: bytes, header: bytes, keeps: bool) -> None:
    (incoming,) = requests(request(line, header))
    assert incoming.keeps_alive is keeps


def test_who_waits_for_a_word_is_seen_once() -> None:
    reader = Requests(HEAD_MAX, BODY_MAX)
    reader.feed(request(b"POST / HTTP/1.1", b"expect: 100-continue", b"content-length: 2"))
    assert reader.take() is None
    assert (reader.wants_continue, reader.is_between) == (True, False)
    reader.feed(b"ab")
    incoming = reader.take()
    assert incoming is not None
    assert incoming.request.body == b"ab"
    assert (reader.wants_continue, reader.is_between) == (False, True)


def test_an_empty_line_before_a_request_is_passed_over() -> None:
    assert len(requests(b"\r\n\r\n" + request())) == 1


def test_many_empty_lines_take_no_time() -> None:
    """One by one, with a copy of the rest each time, these would take hours."""
    assert len(requests(b"\r\n" * (4 << 20) + request())) == 1
    assert requests(b"\r\n" * 1_000) == []
    assert refused(b"\r\n\n" + request())[0] == 400


@pytest.mark.parametrize("target", [b"http://x:80/a?b=c", b"HTTPS://x/a?b=c", b"/a?b=c"])
def test_a_target_as_proxies_get_it_is_taken(target: bytes) -> None:
    ((found, _),) = requests(request(b"GET " + target + b" HTTP/1.1"))
    assert (found.path, found.query) == ("/a", "b=c")


def test_the_same_head_again_is_the_same_request_again() -> None:
    sent = request(b"POST /a HTTP/1.1", b"Content-Length: 3")
    other = request(b"POST /a HTTP/1.1", b"Content-Length: 2")
    found = requests(sent + b"abc" + sent + b"def" + other + b"gh" + sent + b"ijk")
    assert [incoming.request.body for incoming in found] == [b"abc", b"def", b"gh", b"ijk"]
    assert refused(sent + b"abc" + b"POST /a\r\n\r\n")[0] == 400


def test_small_chunks_take_no_more_memory_than_they_say() -> None:
    reader = Requests(HEAD_MAX, 1 << 20)
    reader.feed(request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked"))
    reader.take()
    tracemalloc.start()
    try:
        for _ in range(100):
            reader.feed(b"2\r\nab\r\n" * 1_000)
            assert reader.take() is None
        assert reader.held == 200_000
        assert tracemalloc.get_traced_memory()[0] < 2 * reader.held
    finally:
        tracemalloc.stop()


def test_a_body_of_nothing_is_no_chunk() -> None:
    assert parse_head(b"GET / HTTP/1.0").length == 0


TOKENS = st.text("!#$%&'*+-.^_`|~09azAZ", min_size=1, max_size=8).map(str.encode)
VALUES = st.binary(max_size=12).map(lambda data: bytes(byte for byte in data if byte >= 0x20 and byte != 0x7F))
TARGETS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=10).map(str.encode)
SPECIAL = ("host", "content-length", "transfer-encoding", "connection", "expect", "upgrade")


@st.composite
def sound_requests(draw: st.DrawFn) -> bytes:
    body = draw(st.binary(max_size=BODY_MAX))
    names = [name for name in draw(st.lists(TOKENS, max_size=4)) if name.decode().lower() not in SPECIAL]
    fields = [name + b":" + draw(VALUES) for name in names]
    head = [draw(TOKENS) + b" " + draw(TARGETS) + b" HTTP/1.1", b"host: h", *fields]
    if draw(st.booleans()):
        return b"\r\n".join([*head, b"content-length: %d" % len(body), b"", body])
    sizes = draw(st.lists(st.integers(1, 20), max_size=5))
    chunks, at = [], 0
    for size in sizes:
        if part := body[at : at + size]:
            chunks.append(b"%x\r\n%s\r\n" % (len(part), part))
            at += size
    return b"\r\n".join([*head, b"transfer-encoding: chunked", b"", b"".join(chunks) + b"0\r\n\r\n"])


def by_h11(data: bytes) -> Iterator[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]]:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
    connection.receive_data(data)
    while True:
        event = connection.next_event()
        if not isinstance(event, h11.Request):
            return
        body = b""
        while isinstance(part := connection.next_event(), h11.Data):
            body += part.data
        assert isinstance(part, h11.EndOfMessage)
        yield event.method, event.target, list(event.headers), body
        connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        connection.send(h11.EndOfMessage())
        if connection.our_state is not h11.DONE:
            return
        connection.start_next_cycle()


@given(st.lists(sound_requests(), min_size=1, max_size=3), st.data())
def test_what_h11_takes_is_taken_in_the_same_way_in_any_pieces(sent: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    found = requests(*pieces)
    expected = list(by_h11(whole))
    assert len(found) >= len(expected) > 0
    for (method, target, headers, body), (ours, _) in zip(expected, found, strict=False):
        assert (ours.method.encode(), ours.headers, ours.body) == (method, tuple(headers), body)
        query = f"?{ours.query}" if b"?" in target else ""
        assert f"{ours.path}{query}".encode() == target


@given(st.lists(st.sampled_from([b"GET", b" ", b"/", b"HTTP/1.1", b"\r\n", b"host: x", b"\x00", b"\n", b":", b"0"])))
def test_what_we_take_h11_takes(parts: list[bytes]) -> None:
    data = b"GET / HTTP/1.1\r\nhost: h\r\n" + b"".join(parts) + b"\r\n\r\n"
    try:
        found = requests(data)
    except BadRequest:
        return
    first = next(by_h11(data))
    assert first[2] == list(found[0].request.headers)


@given(st.binary(max_size=300), st.integers(1, 20))
def test_garbage_is_refused_or_waited_for(data: bytes, size: int) -> None:
    with suppress(BadRequest):
        requests(*(data[at : at + size] for at in range(0, len(data), size)))
