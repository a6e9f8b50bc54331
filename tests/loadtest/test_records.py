from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.loadtest.records import RecordForm, due_s

FORM = RecordForm(7, 128)


@given(st.integers(0, 0xFFFF), st.integers(0, 2**47), st.floats(0, 1e7))
def test_a_record_is_known_again(hammer: int, sequence: int, due: float) -> None:
    value = FORM.make(hammer, sequence, int(due * 1e6))
    assert len(value) == 128
    assert FORM.check(value) == (hammer, sequence)
    assert due_s(value) == pytest.approx(due, abs=2e-6)
    assert due_s(value.decode()) == due_s(value)
    assert json.dumps(value.decode()) == f'"{value.decode()}"'


@given(st.integers(30, 127), st.integers(1, 255))
def test_a_changed_byte_of_the_filler_is_seen(place: int, change: int) -> None:
    value = bytearray(FORM.make(1, 2, 3))
    value[place] ^= change
    assert FORM.check(bytes(value)) is None


@pytest.mark.parametrize("value", [b"", b"x" * 128, FORM.make(1, 2, 3)[:-1], RecordForm(8, 128).make(1, 2, 3)])
def test_what_is_none_of_ours_is_told(value: bytes) -> None:
    assert FORM.check(value) is None


def test_neighbours_differ() -> None:
    assert len({FORM.make(1, sequence, 0)[30:] for sequence in range(64)}) == 64
