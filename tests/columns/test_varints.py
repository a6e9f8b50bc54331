from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.columns.varints import Unsound, read, sizes_of, write, zigzag_of
from catena.formats import varint
from catena.formats.varint import INT32_BYTES, INT64_BYTES

small = st.integers(-300, 300)
int32 = small | st.integers(-(2**31), 2**31 - 1)
int64 = small | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(int64, max_size=40))
def test_writes_what_the_other_module_writes(values: list[int]) -> None:
    encoded = [varint.encode(value) for value in values]
    zigzag = zigzag_of(np.array(values, np.int64))
    sizes = sizes_of(zigzag)
    assert sizes.tolist() == [len(one) for one in encoded]
    out = np.zeros(int(sizes.sum()), np.uint8)
    write(out, np.cumsum(sizes) - sizes, zigzag, sizes)
    assert out.tobytes() == b"".join(encoded)


@pytest.mark.parametrize(("numbers", "max_bytes"), [(int32, INT32_BYTES), (int64, INT64_BYTES)])
@given(st.data())
def test_reads_what_the_other_module_writes(
    numbers: st.SearchStrategy[int], max_bytes: int, data: st.DataObject
) -> None:
    values = data.draw(st.lists(numbers, max_size=40))
    encoded = [varint.encode(value) for value in values]
    ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
    starts = ends - np.array([len(one) for one in encoded], np.int64)
    found, after = read(np.frombuffer(b"".join(encoded), np.uint8), starts, max_bytes)
    assert (found.tolist(), after.tolist()) == (values, ends.tolist())


@given(st.lists(st.sampled_from([0, 1, 2, 0x0F, 0x10, 0x7F, 0x80, 0x81, 0xFF]), min_size=1, max_size=12).map(bytes))
def test_refuses_what_the_other_module_refuses(encoded: bytes) -> None:
    for reader, max_bytes in ((varint.read_int32, INT32_BYTES), (varint.read_int64, INT64_BYTES)):
        data, at = np.frombuffer(encoded, np.uint8), np.zeros(1, np.int64)
        try:
            expected = reader(encoded, 0)
        except (ValueError, IndexError):
            with pytest.raises(Unsound):
                read(data, at, max_bytes)
        else:
            found, after = read(data, at, max_bytes)
            assert (found[0], after[0]) == expected


def test_no_byte_outside_is_read() -> None:
    data = np.frombuffer(b"\x02\x80\x01", np.uint8)[:2]
    for at in (1, 2, 100):
        with pytest.raises(Unsound):
            read(data, np.array([0, at]), INT32_BYTES)
