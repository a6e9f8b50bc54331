"""Batches as producers make them, by the dozen, and how to draw them."""

from __future__ import annotations

from hypothesis import strategies as st

from catena.formats.compression import Compression
from catena.formats.records import build_batch


def batch(count: int = 1, size: int = 0, *, time: int = 0, compression: Compression = Compression.NONE) -> bytes:
    """A batch of `count` records, the first of which has a value of this size."""
    values = [b"v" * size, *(b"%d" % number for number in range(1, count))]
    return build_batch([(None, value, (), time) for value in values], compression=compression)


batches = st.builds(
    batch,
    st.integers(1, 7),
    st.integers(0, 300),
    time=st.integers(-1, 50),
    compression=st.sampled_from(Compression),
)
