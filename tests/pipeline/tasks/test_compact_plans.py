from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from catena.pipeline.tasks.compact_plans import KeysPlan, Part, Parts, with_bytes
from catena.pipeline.tasks.listing import kind_of
from catena.types import TopicId

sizes_and_crcs = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)))


@given(sizes_and_crcs)
def test_parts_lie_one_behind_the_other(told: list[tuple[int, int]]) -> None:
    parts = msgspec.json.decode(msgspec.json.encode(Parts.of("name", told)), type=Parts)
    at = 0
    for part, (size, crc) in zip(parts, told, strict=True):
        assert part == Part("name", at, size, crc)
        at += size
    assert len(parts) == len(told)
    assert parts.is_empty == (at == 0)
    assert with_bytes(parts) == tuple(part for part in parts if part.size)


def test_a_part_takes_few_bytes_in_the_driver() -> None:
    """There are as many as groups times buckets."""
    parts = Parts.of("a" * 32, [(123_456, 3_456_789_012)] * 1000)
    assert len(parts.table) == 8 * 1000
    assert len(msgspec.json.encode(tuple(parts))) < 70 * 1000


def test_scratch_has_the_form_of_a_segment() -> None:
    plan = KeysPlan(topic="t", topic_id=TopicId("a" * 32), partition=7, job="b" * 32, buckets=1, segments=())
    assert plan.scratch("c" * 32) == f"llog/{'a' * 32}/partitions/7/segments/{'b' * 32}/{'c' * 32}"
    assert kind_of(plan.scratch("c" * 32)) == "segment"
