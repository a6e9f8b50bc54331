"""The contract of a walk, run against both: it finds what `formats.records` finds, and refuses what that refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catena.columns.fields import Fields, Spans
from catena.columns.varints import Unsound
from catena.errors import InvalidBatch
from catena.formats.record_batch import HEADER_BYTES
from catena.formats.records import build_batch, iter_records
from tests.columns.rows import RecordInput, record_lists, some
from tests.formats.test_records import UNSOUND, batch_of, sized

Walk = Callable[[Any, Spans], Fields]
Found = list[tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]]

on_both = settings(some, suppress_health_check=[HealthCheck.differing_executors])
"""An example that one walk has failed may be tried on the other one as well."""
small_numbers = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 127, 128, 129, 255])
noise = st.lists(small_numbers | st.integers(0, 255), max_size=60).map(bytes)
"""Bytes that often look like records."""


def spans_of(bodies: Sequence[bytes], counts: Sequence[int], last_deltas: Sequence[int]) -> Spans:
    """Of bodies that stand one after the other."""
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    starts = ends - np.array([len(body) for body in bodies], np.int64)
    return Spans(starts, ends, np.array(counts, np.int64), np.array(last_deltas, np.int64))


def found_by(walk: Walk, bodies: Sequence[bytes], counts: Sequence[int], last_deltas: Sequence[int]) -> Found:
    joined = b"".join(bodies)
    walked = walk(np.frombuffer(joined, np.uint8), spans_of(bodies, counts, last_deltas))

    def cut(at: int, size: int) -> bytes | None:
        assert size >= -1
        assert at + size <= len(joined)
        return joined[at : at + size] if size >= 0 else None

    names, name_sizes, values, value_sizes = (numbers.tolist() for numbers in walked.headers)
    headers = [
        (cut(names[number], name_sizes[number]) or b"", cut(values[number], value_sizes[number]))
        for number in range(len(names))
    ]
    found: Found = []
    ends = []
    for end, time, offset, key, key_size, value, value_size, count in zip(
        *(numbers.tolist() for numbers in walked[:8]), strict=True
    ):
        found.append((time, offset, cut(key, key_size), cut(value, value_size), headers[:count]))
        headers = headers[count:]
        ends.append(end)
    assert not headers
    assert ends == sorted(ends)
    assert not ends or ends[-1] == len(joined)
    return found


def expected_of(body: bytes, count: int, last_delta: int) -> Found | None:
    """What the other reader finds in a batch of base time 0; None if it refuses it."""
    try:
        return [
            (
                record.timestamp,
                record.offset,
                record.key,
                record.value,
                [(name.encode(), v) for name, v in record.headers],
            )
            for record in iter_records(batch_of(body, count, last_delta))
        ]
    except InvalidBatch:
        return None


def is_not_text(body: bytes, count: int, last_delta: int) -> bool:
    try:
        list(iter_records(batch_of(body, count, last_delta)))
    except InvalidBatch as error:
        return "utf-8" in str(error)
    return False


def check(walk: Walk, bodies: Sequence[bytes], counts: Sequence[int], last_deltas: Sequence[int]) -> None:
    """It does what the other reader does."""
    arguments = list(zip(bodies, counts, last_deltas, strict=True))
    if any(is_not_text(*each) for each in arguments):
        return
    expected = [expected_of(*each) for each in arguments]
    if None in expected:
        with pytest.raises(Unsound):
            found_by(walk, bodies, counts, last_deltas)
    else:
        assert found_by(walk, bodies, counts, last_deltas) == [row for rows in expected for row in rows or []]


def body_of(records: list[RecordInput]) -> bytes:
    """The records of a batch, with times as distances from that of the first."""
    return build_batch(records)[HEADER_BYTES:]


class WalkContract:
    walk: staticmethod[[Any, Spans], Fields]

    @on_both
    @given(st.lists(record_lists, min_size=1, max_size=5))
    def test_finds_what_is_there(self, batches: list[list[RecordInput]]) -> None:
        counts = [len(records) for records in batches]
        check(self.walk, [body_of(records) for records in batches], counts, [count - 1 for count in counts])

    @on_both
    @given(st.lists(record_lists, min_size=1, max_size=3), st.data())
    def test_one_changed_byte(self, batches: list[list[RecordInput]], data: st.DataObject) -> None:
        bodies = [bytearray(body_of(records)) for records in batches]
        changed = data.draw(st.sampled_from(bodies))
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255) | small_numbers)
        counts = [len(records) for records in batches]
        check(self.walk, [bytes(body) for body in bodies], counts, [count - 1 for count in counts])

    @on_both
    @given(st.lists(record_lists, min_size=1, max_size=3), st.data())
    def test_missing_bytes(self, batches: list[list[RecordInput]], data: st.DataObject) -> None:
        bodies = [body_of(records) for records in batches]
        number = data.draw(st.integers(0, len(bodies) - 1))
        at = data.draw(st.integers(0, len(bodies[number]) - 1))
        bodies[number] = bodies[number][:at] + bodies[number][at + data.draw(st.integers(1, 9)) :]
        counts = [len(records) for records in batches]
        check(self.walk, bodies, counts, [count - 1 for count in counts])

    @on_both
    @given(noise, st.integers(0, 5), st.integers(0, 9))
    def test_noise(self, body: bytes, count: int, more: int) -> None:
        check(self.walk, [body], [count], [max(0, count - 1) + more])

    @on_both
    @given(st.lists(noise, min_size=1, max_size=4))
    def test_noise_inside_of_records(self, parts: list[bytes]) -> None:
        check(self.walk, [b"".join(sized(b"\x00\x00\x00" + part) for part in parts)], [len(parts)], [9])

    @pytest.mark.parametrize("name", UNSOUND)
    def test_what_the_other_reader_refuses(self, name: str) -> None:
        if "no text" in name:
            assert found_by(self.walk, [UNSOUND[name][0]], [1], [0])[0][4] == [(b"\xff", None)]
        else:
            with pytest.raises(Unsound):
                found_by(self.walk, [UNSOUND[name][0]], [1], [0])

    def test_many_headers(self) -> None:
        few = (("a", b"1"), ("b", None), ("", b""))
        many = tuple((f"name-{number}", b"x" * (number % 200)) for number in range(3000))
        records: list[RecordInput] = [(b"k", None, few[: number % 4], 0) for number in range(100)]
        body = body_of([*records, (None, b"v", many, 5), *records])
        check(self.walk, [body], [201], [200])
        check(self.walk, [body[:-1] + b"\x02"], [201], [200])

    def test_long_numbers(self) -> None:
        large = b"v" * 3_000_000
        check(self.walk, [body_of([(large, None, (), 2**62), (None, large, (("n", large),), -1)])], [2], [1])

    def test_nothing(self) -> None:
        assert found_by(self.walk, [], [], []) == []
        assert found_by(self.walk, [b"", b""], [0, 0], [4, 0]) == []
        with pytest.raises(Unsound):
            found_by(self.walk, [b"\x00"], [0], [0])

    def test_offsets_of_a_thinned_batch(self) -> None:
        body = sized(b"\x00\x00\x04\x01\x01\x00") + sized(b"\x00\x00\x0a\x01\x01\x00")
        assert [row[1] for row in found_by(self.walk, [body, body], [2, 2], [5, 9])] == [2, 5, 2, 5]
        with pytest.raises(Unsound):
            found_by(self.walk, [body, body], [2, 2], [9, 4])
        with pytest.raises(Unsound):
            found_by(self.walk, [sized(b"\x00\x00\x04\x01\x01\x00") * 2], [2], [9])

    def test_a_span_ends_where_it_ends(self) -> None:
        """A record must not go on in the next batch, even if the bytes would allow it."""
        body = body_of([(None, b"value", (), 0), (None, b"value", (), 0)])
        check(self.walk, [body[:9], body[9:]], [1, 1], [0, 1])
        with pytest.raises(Unsound):
            found_by(self.walk, [body, body], [3, 1], [9, 9])
