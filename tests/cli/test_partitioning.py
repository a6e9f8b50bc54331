"""The hash is Kafka's: these pairs are from the tests of its Java client."""

from __future__ import annotations

import pytest

from catena.cli.partitioning import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_every_key_has_a_partition() -> None:
    found = {partition_of(str(number).encode(), 3) for number in range(100)}
    assert found == {0, 1, 2}
    assert partition_of(b"", 7) in range(7)
