from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catena.wire import frames as module
from catena.wire.frames import FIRST_BYTES, SMALL_BYTES, Frames, FrameTooLarge
from catena.wire.reader import WireError
from catena.wire.requests import parse_request

SMALL, FIRST, MAX = 32, 64, 1000
"""So small that a few bytes reach every wrap-around."""


@pytest.fixture(autouse=True, scope="module")
def small_buffers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL_BYTES", SMALL)
        patch.setattr(module, "FIRST_BYTES", FIRST)
        yield


@pytest.fixture
def real_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL_BYTES", SMALL_BYTES)
    monkeypatch.setattr(module, "FIRST_BYTES", FIRST_BYTES)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def receive(frames: Frames, data: bytes, cuts: Iterator[int]) -> Iterator[memoryview]:
    """Receives in pieces of these sizes, or as much as there is space for."""
    at = 0
    while at < len(data):
        space = frames.space()
        assert len(space)
        count = min(next(cuts), len(space), len(data) - at)
        space[:count] = data[at : at + count]
        at += count
        yield from frames.received(count)


def always(size: int) -> Iterator[int]:
    while True:
        yield size


bodies = st.lists(
    st.integers(0, 3 * SMALL) | st.sampled_from([0, SMALL - 5, SMALL - 4, SMALL - 3, FIRST, FIRST + 1, 5 * FIRST, MAX])
).map(lambda sizes: [bytes([number % 251]) * size for number, size in enumerate(sizes)])


@settings(max_examples=500)
@given(bodies, st.lists(st.integers(1, 100), min_size=1), st.integers(0, SMALL + 10))
def test_frames_are_the_same_however_they_arrive(sent: list[bytes], cuts: list[int], rest: int) -> None:
    frames = Frames(MAX)
    unfinished = framed(bytes(MAX))[:rest]

    def sizes() -> Iterator[int]:
        while True:
            yield from cuts

    got = list(receive(frames, b"".join(map(framed, sent)), sizes()))
    assert got == sent
    assert not frames.is_within
    assert list(receive(frames, unfinished, sizes())) == []
    assert frames.is_within == bool(rest)
    assert list(receive(frames, framed(bytes(MAX))[rest:], sizes())) == [bytes(MAX)]
    assert got == sent, "a frame was overwritten by what came after it"


@given(bodies, st.integers(1, 100))
def test_byte_by_byte_and_all_at_once(sent: list[bytes], size: int) -> None:
    data = b"".join(map(framed, sent))
    assert list(receive(Frames(MAX), data, always(1))) == sent
    assert list(receive(Frames(MAX), data, always(len(data) + 1))) == sent


@pytest.mark.parametrize("size", [MAX + 1, (1 << 31) - 1, -1, -(1 << 31)])
def test_sizes_that_are_refused(size: int) -> None:
    frames = Frames(MAX)
    arriving = receive(frames, framed(b"before") + struct.pack(">i", size) + b"rest", always(1000))
    assert bytes(next(arriving)) == b"before"
    with pytest.raises(FrameTooLarge, match=f"a request of {size} bytes; up to {MAX} are taken"):
        next(arriving)


def test_the_largest_frame() -> None:
    assert [len(frame) for frame in receive(Frames(MAX), framed(bytes(MAX)) * 2, always(7))] == [MAX, MAX]


def test_an_empty_frame_is_no_request() -> None:
    (frame,) = receive(Frames(MAX), bytes(4), always(4))
    assert len(frame) == 0
    with pytest.raises(WireError):
        parse_request(frame)


def test_a_large_frame_is_received_in_place() -> None:
    frames = Frames(MAX)
    data = framed(b"x" * FIRST)
    assert list(receive(frames, data[:20], always(20))) == []
    space = frames.space()
    assert len(space) == FIRST - 16
    (frame,) = receive(frames, data[20:], always(1000))
    assert frame == data[4:]
    assert frame.obj is space.obj


def test_how_much_of_a_large_frame_is_there() -> None:
    frames = Frames(MAX)
    assert list(receive(frames, framed(b"a") * 3, always(5))) == [b"a"] * 3
    assert (frames.large, frames.filled, frames.is_within) == (0, 0, False)
    assert list(receive(frames, struct.pack(">i", MAX), always(4))) == []
    assert (frames.large, frames.filled, frames.is_within) == (MAX, 0, True)
    assert list(receive(frames, bytes(MAX - 1), always(300))) == []
    assert (frames.large, frames.filled, frames.is_within) == (MAX, MAX - 1, True)
    assert list(receive(frames, b"\0", always(1))) == [bytes(MAX)]
    assert (frames.large, frames.filled, frames.is_within) == (0, 0, False)


def test_a_large_frame_grows_with_what_has_arrived() -> None:
    frames = Frames(MAX)
    data = framed(bytes(range(250)) * 4)
    given_bytes = set()
    at = 0
    while not (got := list(receive(frames, data[at : at + 10], always(10)))):
        at += 10
        given_bytes.add(frames.space().nbytes + max(0, at - 4) if at > SMALL else 0)
    assert given_bytes == {0, FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, MAX}
    assert got == [data[4:]]


@given(st.integers(SMALL, MAX), st.integers(0, SMALL), st.integers(1, 100))
def test_a_large_frame_grows_where_it_is_received_and_says_so_before(size: int, ahead: int, cut: int) -> None:
    frames = Frames(MAX)
    data = framed(bytes(number % 251 for number in range(size)))
    assert list(receive(frames, data[: 4 + min(ahead, SMALL - 4)], always(SMALL))) == []
    asked = [frames.wants]
    assert asked == [min(size, FIRST)]
    got: list[memoryview] = []
    at = 4 + min(ahead, SMALL - 4)
    while not got:
        granted = sum(asked)
        space = frames.space()
        assert frames.wants == 0
        assert frames.filled + len(space) == granted, "it has what it asked for, and no more"
        count = min(cut, len(space))
        space[:count] = data[at : at + count]
        at += count
        got = list(frames.received(count))
        assert bool(frames.wants) == (frames.filled == granted)
        if frames.wants:
            assert frames.wants == min(granted, size - granted)
            asked.append(frames.wants)
    assert got == [data[4:]]
    assert sum(asked) == size
    assert frames.wants == 0


@pytest.mark.usefixtures("real_buffers")
def test_what_is_announced_is_not_believed() -> None:
    frames = Frames(1 << 30)
    tracemalloc.start()
    try:
        assert list(receive(frames, struct.pack(">i", 1 << 30), always(4))) == []
        assert tracemalloc.get_traced_memory()[1] <= 10_000, "whoever waits before it reads the rest has no buffer"
        assert frames.space().nbytes <= FIRST_BYTES
        assert tracemalloc.get_traced_memory()[1] <= FIRST_BYTES + 10_000
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("real_buffers")
def test_frames_of_real_sizes() -> None:
    sent = [bytes(size) for size in (10, SMALL_BYTES - 4, SMALL_BYTES, 1 << 20, 0, 9 << 20)]
    assert list(receive(Frames(16 << 20), b"".join(map(framed, sent)), always(100_000))) == sent
