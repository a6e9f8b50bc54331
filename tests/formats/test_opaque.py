from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from catena.formats.opaque import Opaque


def of(offsets: list[int]) -> Opaque:
    found = Opaque()
    for offset in offsets:
        found = found.plus(offset)
    return found


offset_lists = st.lists(st.integers(0, 2**62), unique=True).map(sorted)


@given(offset_lists, offset_lists)
def test_they_are_the_same_if_the_offsets_are(left: list[int], right: list[int]) -> None:
    assert (of(left) == of(right)) == (left == right)
    assert (of(left).batches, of(left).first) == (len(left), left[0] if left else -1)


def test_it_goes_through_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(of([3, 9])), type=Opaque) == of([3, 9])
