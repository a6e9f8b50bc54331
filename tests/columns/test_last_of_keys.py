from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.columns import last_of_keys
from catena.columns.gather import Body
from catena.columns.last_of_keys import NONE, KeyFinder, LastOfKeys, last_rows, merged, only_last
from catena.errors import Corrupt
from catena.formats.compression import Compression
from catena.formats.opaque import Opaque
from catena.formats.records import build_batch
from tests.columns.nonsense import nonsense
from tests.columns.rows import ORDERS, Drawn, logs, some
from tests.columns.test_thinning import body, records_of, thin

SALT = b"job"


def last_of(bodies: Sequence[Body], salt: bytes = SALT) -> LastOfKeys:
    finder = KeyFinder(ORDERS, salt)
    for each in bodies:
        finder.add(each)
    assert finder.opaque == Opaque()
    return finder.finish()


def found_in(bodies: Sequence[Body], salt: bytes = SALT) -> dict[tuple[int, int], tuple[int, bool]]:
    last = last_of(bodies, salt)
    columns = (last.high, last.low, last.offset, last.is_tombstone)
    return {
        (high, low): (offset, mark) for high, low, offset, mark in zip(*map(np.ndarray.tolist, columns), strict=True)
    }


@some
@given(drawn=logs())
def test_it_is_what_a_dictionary_says(drawn: Drawn) -> None:
    expected = {
        record.key: (record.offset, record.value is None)
        for record in records_of(drawn.bodies)
        if record.key is not None
    }
    assert list(found_in(drawn.bodies).values()) == sorted(expected.values()), "in the order of offsets"


def rows(*hashes: tuple[int, int], first: int = 0) -> LastOfKeys:
    high, low = np.array(hashes, np.uint64).reshape(-1, 2).T.copy()
    return LastOfKeys(high, low, np.arange(first, first + len(hashes), dtype=np.uint64))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3) | st.just(2**64 - 1), st.integers(0, 3)), max_size=20), max_size=5)
)
def test_of_parts_it_is_what_a_dictionary_says(parts: list[list[tuple[int, int]]]) -> None:
    """Also if hashes differ in their last bits only."""
    joined = [each for part in parts for each in part]
    given_rows = [rows(*part, first=sum(map(len, parts[:number]))) for number, part in enumerate(parts)]
    expected = {each: row for row, each in enumerate(joined)}
    found = merged(given_rows)
    assert found.marked.tolist() == sorted(expected.values())
    assert list(zip(found.high.tolist(), found.low.tolist(), strict=True)) == [joined[row] for row in found.marked]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.sampled_from([1, 2**32, 2**58]))
def test_hashes_that_share_bits_are_told_apart(keys: list[int], spread: int) -> None:
    high = np.array([key * spread % 2**64 for key in keys], np.uint64)
    low = np.array([key % 3 for key in keys], np.uint64)
    seen = {pair: row for row, pair in enumerate(zip(high.tolist(), low.tolist(), strict=True))}
    assert last_rows(high, low).tolist() == sorted(seen.values())


def test_of_nothing_there_is_none() -> None:
    assert merged([]).rows == merged([NONE, NONE]).rows == 0
    assert last_of([]).rows == 0


def test_a_key_has_the_same_hash_everywhere_in_a_job_and_another_in_the_next() -> None:
    one = body(build_batch([(b"a", b"1", (), 0)]))
    other = body(build_batch([(b"a", None, (), 5)], compression=Compression.ZSTD), offset=99)
    assert found_in([one]).keys() == found_in([other]).keys()
    assert found_in([one, other]) == dict.fromkeys(found_in([one]), (99, True))
    assert found_in([one], b"next").keys() != found_in([one]).keys()


def test_an_empty_key_is_a_key_and_none_is_not() -> None:
    batch = build_batch([(b"", b"1", (), 0), (None, b"2", (), 0)])
    assert list(found_in([body(batch)]).values()) == [(10, False)]
    assert found_in([body(build_batch([(None, b"2", (), 0)]))]) == {}


def test_gaps_hold_no_keys() -> None:
    gap = b"".join(thin([body(build_batch([(b"a", b"1", (), 0)]))], set()).batches)
    assert found_in([body(gap)]) == {}
    assert [offset for offset, _ in found_in([body(gap, build_batch([(b"a", b"1", (), 0)]))]).values()] == [11]


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_of_keys, "MERGED_ROWS", 4)
    held: list[int] = []

    def merge(joined: LastOfKeys) -> LastOfKeys:
        held.append(joined.rows)
        return only_last(joined)

    monkeypatch.setattr(last_of_keys, "only_last", merge)
    bodies = [body(build_batch([(b"%d" % (number % 5), b"v", (), 0)]), offset=number) for number in range(40)]
    assert last_of(bodies).offset.tolist() == [35, 36, 37, 38, 39]
    assert len(held) > 4
    assert max(held) <= 11, "twice as many as there are keys, and one body"


def test_batches_that_can_not_be_decoded_are_told() -> None:
    sound = build_batch([(b"a", b"1", (), 0)])
    finder = KeyFinder(ORDERS, SALT)
    finder.add(body(sound, nonsense(3), sound, nonsense(2), sound))
    assert finder.finish().offset.tolist() == [10 + 1 + 3 + 1 + 2]
    assert finder.opaque == Opaque().plus(11).plus(15)


def test_damage_is_named() -> None:
    batch = bytearray(build_batch([(b"a", b"1", (), 0)]))
    batch[-1] ^= 1
    with pytest.raises(Corrupt, match="topic orders, partition 3, the batch at offset 10, object object at byte 100"):
        KeyFinder(ORDERS, SALT).add(body(bytes(batch)))
