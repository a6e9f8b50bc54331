"""The ring between processes: whatever is seen of a writer at work, a wrong byte is never taken for a right one."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catena.loglets.diskless import tail_ring
from catena.loglets.diskless.tail_ring import (
    HEAD_BYTES,
    MIN_RING_BYTES,
    POSITION_AT,
    RING_AT,
    Frame,
    NotARing,
    RingReader,
    RingWriter,
)
from catena.types import Buffers, TopicId

TOPIC, OTHER = TopicId("0123456789abcdef" * 2), TopicId("f" * 32)
HISTORY = "cluster branch"


class File:
    """As others see it: each write happens at once."""

    def __init__(self, size: int) -> None:
        self.content = bytearray(RING_AT + size)

    def read(self, at: int, length: int) -> bytes:
        return bytes(self.content[at : at + length])

    def write(self, at: int, data: Buffers) -> None:
        for buffer in data:
            self.content[at : at + len(buffer)] = buffer
            at += len(buffer)


class TornFile(File):
    """Writes become visible in small pieces, while others read: before, after and in the middle of what they read."""

    def __init__(self, size: int, random: Random, *, in_order: bool) -> None:
        super().__init__(size)
        self._random = random
        self._in_order = in_order
        self._pieces: deque[tuple[int, bytes]] = deque()

    def write(self, at: int, data: Buffers) -> None:
        whole = b"".join(data)
        begin = 0
        while begin < len(whole):
            end = begin + self._random.randint(1, 40)
            self._pieces.append((at + begin, whole[begin:end]))
            begin = end
        if not self._in_order and self._random.random() < 0.3:
            self._random.shuffle(self._pieces)

    def read(self, at: int, length: int) -> bytes:
        found = b""
        while len(found) < length:
            self.show(self._random.choice((0, 0, 0, 1, 3, 20)))
            some = min(length - len(found), self._random.randint(1, 200))
            found += super().read(at + len(found), some)
        return found

    def show(self, pieces: int) -> None:
        for _ in range(min(pieces, len(self._pieces))):
            super().write(self._pieces[0][0], [self._pieces.popleft()[1]])

    def show_all(self) -> None:
        self.show(len(self._pieces))


def frame(offset: int, size: int, topic: TopicId = TOPIC, random: Random | None = None) -> Frame:
    data = (random or Random(offset)).randbytes(size)
    return Frame(topic, offset % 5, 3, offset, 1 + offset % 3, float(offset), data)


def everything(_topic: TopicId, _partition: int) -> bool:
    return True


def poll_all(reader: RingReader) -> tuple[list[Frame], bool]:
    frames, lost = [], False
    while True:
        polled = reader.poll(everything)
        frames += polled.frames
        lost = lost or polled.lost
        if not polled.more:
            return frames, lost


def play(seed: int, *, in_order: bool) -> tuple[list[Frame], list[Frame], bool]:
    """A writer and a reader, at random: what was written, what was heard, and whether something was lost."""
    random = Random(seed)
    size = random.choice((MIN_RING_BYTES, 1000, 3000))
    file = TornFile(size, random, in_order=in_order)
    writer = RingWriter(file, size, HISTORY)
    file.show_all()
    reader = RingReader(file, HISTORY)
    written: list[Frame] = []
    heard: list[Frame] = []
    lost = False
    for _ in range(random.randint(1, 40)):
        if random.random() < 0.5:
            count = random.randint(1, 4)
            frames = [frame(len(written) + n, random.randint(0, size // 3), random=random) for n in range(count)]
            written += frames
            writer.append(frames)
        else:
            polled = reader.poll(everything)
            heard += polled.frames
            lost = lost or polled.lost
    file.show_all()
    frames, lost_at_last = poll_all(reader)
    stride = size // 4
    expected = [each if HEAD_BYTES + len(each.data) <= stride else each._replace(data=b"") for each in written]
    return expected, heard + frames, lost or lost_at_last


def check(written: list[Frame], heard: list[Frame], lost: bool) -> None:
    by_offset = {each.offset: each for each in written}
    assert [each for each in heard if by_offset.get(each.offset) != each] == []
    assert [each.offset for each in heard] == sorted({each.offset for each in heard})
    if not lost:
        assert heard == written


@given(st.integers(0, 2**32))
@settings(max_examples=300)
def test_a_reader_of_a_writer_at_work_hears_the_truth_or_that_it_lost_something(seed: int) -> None:
    check(*play(seed, in_order=True))


@given(st.integers(0, 2**32))
@settings(max_examples=300)
def test_nor_is_it_deceived_where_writes_are_seen_in_another_order(seed: int) -> None:
    written, heard, _ = play(seed, in_order=False)
    # Position and bytes are not of one moment: what is lost may not be noticed, but nothing is wrong or twice.
    check(written, heard, lost=True)


def deceived(monkeypatch: pytest.MonkeyPatch, *, checksums: bool, positions: bool) -> bool:
    """Whether a reader without these checks takes something wrong for right, in one of many runs."""
    if not checksums:
        monkeypatch.setattr(tail_ring, "crc32c", lambda _: 0)
    if not positions:
        monkeypatch.setattr(RingReader, "_stands", lambda _self, _at, _position: True)
    for seed in range(400):
        written, heard, lost = play(seed, in_order=True)
        try:
            check(written, heard, lost)
        except AssertionError:
            return True
    return False


def test_each_of_its_two_checks_would_be_enough_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        assert not deceived(patched, checksums=False, positions=True)
    with monkeypatch.context() as patched:
        assert not deceived(patched, checksums=True, positions=False)


def test_without_both_wrong_bytes_would_be_seen_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert deceived(monkeypatch, checksums=False, positions=False)


def test_a_position_check_that_forgets_the_stride_would_be_seen_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingReader, "_stands", lambda self, at, position: at >= position - self._size)
    assert deceived(monkeypatch, checksums=False, positions=True)


def test_only_what_is_wanted_is_brought() -> None:
    file = File(4000)
    writer = RingWriter(file, 4000, HISTORY)
    reader = RingReader(file, HISTORY)
    writer.append([frame(0, 100, OTHER), frame(1, 100), frame(2, 100, OTHER), frame(3, 100)])
    polled = reader.poll(lambda topic, partition: (topic, partition) == (TOPIC, 1))
    assert polled.frames == [frame(1, 100)]
    assert (polled.lost, polled.more) == (False, False)
    assert reader.poll(everything).frames == []


def test_a_batch_that_is_too_large_is_told_of_without_its_bytes() -> None:
    file = File(4000)
    writer = RingWriter(file, 4000, HISTORY)
    reader = RingReader(file, HISTORY)
    writer.append([frame(0, 1000), frame(1, 1000 - HEAD_BYTES)])
    assert reader.poll(everything).frames == [frame(0, 1000)._replace(data=b""), frame(1, 1000 - HEAD_BYTES)]


def test_who_comes_to_a_young_ring_hears_all_and_who_comes_late_only_what_is_new() -> None:
    file = File(4000)
    writer = RingWriter(file, 4000, HISTORY)
    writer.append([frame(0, 500)])
    assert poll_all(RingReader(file, HISTORY))[0] == [frame(0, 500)]
    writer.append([frame(offset, 500) for offset in range(1, 10)])
    late = RingReader(file, HISTORY)
    assert poll_all(late) == ([], False)
    writer.append([frame(10, 500)])
    assert poll_all(late) == ([frame(10, 500)], False)


def test_who_falls_behind_goes_on_with_what_is_new() -> None:
    file = File(4000)
    writer = RingWriter(file, 4000, HISTORY)
    reader = RingReader(file, HISTORY)
    for offset in range(30):
        writer.append([frame(offset, 500)])
    assert poll_all(reader) == ([], True)
    writer.append([frame(30, 500)])
    assert poll_all(reader) == ([frame(30, 500)], False)


def test_one_poll_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_ring, "POLL_BYTES", 3000)
    file = File(1 << 20)
    writer = RingWriter(file, 1 << 20, HISTORY)
    reader = RingReader(file, HISTORY)
    writer.append([frame(offset, 100) for offset in range(10)])
    polled = reader.poll(everything)
    assert (len(polled.frames), polled.more) == (3, True)
    assert len(poll_all(reader)[0]) == 7


def test_what_is_damaged_is_lost_and_not_served() -> None:
    for damaged in (RING_AT + 3, RING_AT + HEAD_BYTES + 50):
        file = File(4000)
        writer = RingWriter(file, 4000, HISTORY)
        reader = RingReader(file, HISTORY)
        writer.append([frame(0, 100), frame(1, 100)])
        file.content[damaged] ^= 1
        assert poll_all(reader) == ([], True)
        writer.append([frame(2, 100)])
        assert poll_all(reader) == ([frame(2, 100)], False)


def test_a_position_that_was_half_written_is_not_followed() -> None:
    file = File(4000)
    writer = RingWriter(file, 4000, HISTORY)
    reader = RingReader(file, HISTORY)
    writer.append([frame(0, 100)])
    file.content[POSITION_AT + 3] ^= 1
    assert poll_all(reader) == ([], False)
    with pytest.raises(NotARing, match="position"):
        RingReader(file, HISTORY)


def test_what_is_not_a_ring_of_this_history_is_refused() -> None:
    with pytest.raises(NotARing, match="too short"):
        RingReader(File(-100), HISTORY)
    with pytest.raises(NotARing, match="something else"):
        RingReader(File(4000), HISTORY)
    file = File(4000)
    RingWriter(file, 4000, "another branch")
    with pytest.raises(NotARing, match="branch"):
        RingReader(file, HISTORY)
