from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.columns import last_of_keys
from catena.columns.gather import Body
from catena.columns.last_of_keys import LastOfKeys, find_last, merged
from catena.errors import Corrupt
from catena.formats.compression import Compression
from catena.formats.records import build_batch
from tests.columns.rows import ORDERS, Drawn, logs, some
from tests.columns.test_thinning import body, records_of, thin

SALT = b"job"


def found_in(bodies: Sequence[Body], salt: bytes = SALT) -> dict[tuple[int, int], tuple[int, bool]]:
    last = merged(find_last(bodies, ORDERS, salt))
    return {
        (int(high), int(low)): (int(offset), bool(is_tombstone))
        for high, low, offset, is_tombstone in zip(*last, strict=True)
    }


@some
@given(drawn=logs())
def test_it_is_what_a_dictionary_says(drawn: Drawn) -> None:
    expected = {
        record.key: (record.offset, record.value is None)
        for record in records_of(drawn.bodies)
        if record.key is not None
    }
    assert sorted(found_in(drawn.bodies).values()) == sorted(expected.values())


@some
@given(data=st.data())
def test_parts_can_be_merged_in_any_order(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30))
    columns = [
        LastOfKeys(
            np.array([high], np.uint64), np.array([low], np.uint64), np.array([offset]), np.array([is_tombstone])
        )
        for offset, (high, low, is_tombstone) in enumerate(rows)
    ]
    expected = {(high, low): (offset, is_tombstone) for offset, (high, low, is_tombstone) in enumerate(rows)}
    found = merged(data.draw(st.permutations(columns)))
    assert [tuple(map(int, pair)) for pair in zip(found.high, found.low, strict=True)] == sorted(expected)
    assert (
        dict(
            zip(
                zip(found.high, found.low, strict=True), zip(found.offset, found.is_tombstone, strict=True), strict=True
            )
        )
        == expected
    )


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


def test_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_of_keys, "MAX_ROWS", 4)
    batches = [build_batch([(b"%d" % (number % 5), b"v", (), 0)]) for number in range(20)]
    parts = list(find_last([body(*batches)], ORDERS, SALT))
    assert [part.rows for part in parts] == [4] * 5
    assert sorted(merged(parts).offset.tolist()) == [25, 26, 27, 28, 29]


def test_damage_is_named() -> None:
    batch = bytearray(build_batch([(b"a", b"1", (), 0)]))
    batch[-1] ^= 1
    with pytest.raises(Corrupt, match="topic orders, partition 3, the batch at offset 10, object object at byte 100"):
        list(find_last([body(bytes(batch))], ORDERS, SALT))
